package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker/programs"
)

// patience ends a test that hangs. It bounds nothing: the machine may be busy.
const patience = 5 * time.Minute

// asCommand makes the test binary the command itself, for tests that need
// processes to kill.
const asCommand = "JOBQ_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	programs.MaybeRunShim()
	if flag := os.Getenv(asPanickingUI); flag != "" {
		fmt.Fprintln(os.Stderr, "the UI has ended:", panickingUI(flag, os.Args[1], len(os.Args) > 2))
		os.Exit(1)
	}
	if url, ledger, ok := strings.Cut(os.Getenv(asLedger), " "); ok {
		fmt.Fprintln(os.Stderr, "the worker has ended:", runLedger(url, ledger))
		os.Exit(1)
	}
	if os.Getenv(asCommand) != "" {
		main()
	}
	for _, name := range []string{"DATABASE_URL", "JOBQ_DATABASE_URL", "JOBQ_LISTEN_URL", "JOBQ_CONTEXT"} {
		_ = os.Unsetenv(name) // tests say which database they mean
	}
	_ = os.Setenv("XDG_CONFIG_HOME", "/nowhere") // and have no settings of the one who runs them
	pgtest.Main(m)
}

// invoke runs the command in this process and returns its output.
func invoke(t *testing.T, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code = run(ctx, args, strings.NewReader(input), &out, &errs)
	return out.String(), errs.String(), code
}

// process is the command in a process of its own.
type process struct {
	*exec.Cmd
	log *syncBuffer
}

// syncBuffer is read while it is written.
type syncBuffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcessWith(t, nil, args...)
}

// startProcessWith adds to the environment.
func startProcessWith(t *testing.T, environment []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...), log: &syncBuffer{}}
	p.Env = append(append(os.Environ(), asCommand+"=1"), environment...)
	p.Stdout, p.Stderr = p.log, p.log
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = p.Process.Kill()
		_ = p.Wait()
		if t.Failed() {
			t.Logf("%s %v wrote:\n%s", "jobq", args, p.log)
		}
	})
	return p
}

func (p *process) awaitLog(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(p.log.String(), text) }, patience, 5*time.Millisecond, "no %q in the log", text)
}

// query reads one value.
func query[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (value T) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&value), sql)
	return value
}

func eventually[T comparable](t *testing.T, pool *pgxpool.Pool, want T, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool {
		var got T
		return pool.QueryRow(context.Background(), sql, args...).Scan(&got) == nil && got == want
	}, patience, 5*time.Millisecond, "%s is not %v", sql, want)
}

// A job enqueued by plain SQL wakes a worker that waits, runs a program, and
// `show` tells its whole story.
func TestSQLToProgramToShow(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	w := startProcess(t, "worker", "--database-url", url, "--run", `hello=sh -c 'cat; echo problem >&2'`, "--run", "env=env", "--poll", "1h")
	w.awaitLog(t, "worker started")
	id := query[int64](t, pool, `select jobq.enqueue('hello', '{"a":1}')`)
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", id)

	out, _, code := invoke(t, "", "show", fmt.Sprint(id), "--json", "--database-url", url)
	require.Zero(t, code)
	var story struct {
		State string
		Args  map[string]int
		Runs  []struct{ Outcome, Output string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &story))
	require.Equal(t, "completed", story.State)
	require.Equal(t, map[string]int{"a": 1}, story.Args)
	require.Len(t, story.Runs, 1)
	require.Contains(t, story.Runs[0].Output, `{"a": 1}`)
	require.Contains(t, story.Runs[0].Output, "problem")

	// The program's environment tells it about the job, and not the database.
	id = query[int64](t, pool, `select jobq.enqueue('env', max_attempts => 3, partition_key => 'customer 17')`)
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", id)
	output := query[string](t, pool, "select output from jobq.attempt where job_id = $1", id)
	token := query[int64](t, pool, "select lease_token from jobq.job where id = $1", id)
	key := query[string](t, pool, "select id || '-' || (extract(epoch from created_at) * 1000000)::bigint from jobq.job where id = $1", id)
	for _, want := range []string{fmt.Sprintf("JOBQ_JOB_ID=%d\n", id), "JOBQ_IDEMPOTENCY_KEY=" + key + "\n", "JOBQ_KIND=env\n", "JOBQ_QUEUE=default\n", "JOBQ_PARTITION_KEY=customer 17\n", "JOBQ_ATTEMPT=1\n", "JOBQ_MAX_ATTEMPTS=3\n", fmt.Sprintf("JOBQ_LEASE_TOKEN=%d\n", token)} {
		require.Contains(t, output, want)
	}
	require.NotContains(t, output, asCommand)

	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	require.NoError(t, w.Wait(), "a drained worker exits with 0")
}

// Exit codes and the control channel of programs decide as documented.
func TestProgramOutcomes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	startProcess(t, "worker", "--database-url", url,
		"--run", `fails=sh -c 'echo why >&2; exit 3'`, "--run", `later=sh -c 'exit 75'`, "--run", `never=sh -c 'echo bad args >&2; exit 65'`,
		"--run", `dies=sh -c 'kill -9 $$'`, "--run", `missing=/does/not/exist`,
		"--run", `talks=sh -c 'echo "{\"progress\": 50, \"stage\": \"s\"}" >&3; echo "{\"result\": {\"x\": 1}}" >&3'`,
		"--run", `garbles=sh -c 'echo garbage >&3'`, "--run", `loses=sh -c 'echo garbage >&3; exit 75'`, "--run", `cancels=sh -c 'echo "{\"cancel\": \"not needed\"}" >&3'`,
		"--run", `resumes=sh -c 'if [ -n "$JOBQ_CHECKPOINT" ]; then echo "{\"result\": $JOBQ_CHECKPOINT}" >&3; else echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 1; fi'`)
	missing := query[int64](t, pool, "select jobq.enqueue('missing', max_attempts => 1)")
	for kind, want := range map[string]struct{ state, errorText string }{
		"fails":   {"failed", "exit code 3: why"},
		"later":   {"scheduled", ""},
		"never":   {"failed", "exit code 65: bad args"},
		"dies":    {"failed", "killed by SIGKILL"},
		"talks":   {"completed", ""},
		"garbles": {"failed", "control channel"},
		"loses":   {"failed", "control channel"},
		"cancels": {"cancelled", ""},
		"resumes": {"completed", "exit code 1"},
	} {
		attempts := 1
		if kind == "resumes" || kind == "never" {
			attempts = 5
		}
		id := query[int64](t, pool, "select jobq.enqueue($1, max_attempts => $2, backoff_base => '1 ms')", kind, attempts)
		eventually(t, pool, want.state, "select state::text from jobq.job where id = $1 and lease_token > 0", id)
		require.Contains(t, query[string](t, pool, "select coalesce(last_error, '') from jobq.job where id = $1", id), want.errorText, kind)
		switch kind {
		case "later":
			require.Zero(t, query[int](t, pool, "select attempts from jobq.job where id = $1", id))
		case "talks":
			require.JSONEq(t, `{"x": 1}`, query[string](t, pool, "select result::text from jobq.job where id = $1", id))
		case "resumes":
			require.JSONEq(t, `{"at": 7}`, query[string](t, pool, "select result::text from jobq.job where id = $1", id))
		}
	}

	require.Zero(t, query[int](t, pool, "select attempts from jobq.job where id = $1", missing), "it has not begun")
	// The worker counts them by kind, and says so with its next heartbeat.
	for kind, end := range map[string]string{
		"fails": "failed", "later": "later", "never": "final", "dies": "signalled", "missing": "not_started", "talks": "succeeded",
	} {
		eventually(t, pool, true, "select (programs -> $1 ->> 'started')::int >= 1 and programs -> $1 ->> 'started' = programs -> $1 ->> $2 from jobq.worker", kind, end)
	}
	require.Positive(t, query[float64](t, pool, "select (programs -> 'talks' ->> 'cpu_seconds')::float8 * (programs -> 'talks' ->> 'max_rss_bytes')::float8 from jobq.worker"))
	stdout, _, code := invoke(t, "", "workers", "--programs", "--database-url", url)
	require.Zero(t, code)
	require.Regexp(t, `resumes +2 +0 +1 +0 +0 +1 +0 +0 +\d+ms +\d+\.\d MiB`, stdout)
}

// A worker waits for a database that is not there yet.
func TestWorkerWaitsForDatabase(t *testing.T) {
	t.Parallel()
	proxy := pgtest.StartProxy(t, pgtest.URL(t))
	proxy.Refuse(true)
	w := startProcess(t, "worker", "--database-url", proxy.URL, "--run", "task=true")
	w.awaitLog(t, "database call failed")
	proxy.Refuse(false)
	w.awaitLog(t, "worker started")
}

// A shell script tells its worker everything by `jobq job`, and resumes from
// its checkpoint.
func TestJobCommandInScripts(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	tell := func(args string) string { return asCommand + "=1 " + os.Args[0] + " job " + args }
	script := strings.Join([]string{
		"set -e",
		tell("progress 40 --stage resize --message img"),
		`if [ -z "$JOBQ_CHECKPOINT" ]; then ` + tell(`checkpoint "{\"at\": 7}"`) + `; exit 1; fi`,
		tell(`enqueue other "{\"x\": 1, \"y\": 1}" --queue elsewhere --unique-by x --unique-for 1h`),
		tell(`enqueue other "{\"x\": 1, \"y\": 2}" --unique-by x --on-conflict replace`),
		tell(`enqueue other --queue plain --unique-key u --unique-window 3000d`),
		`echo "$JOBQ_CHECKPOINT" | ` + tell("result -"),
	}, "\n")
	startProcess(t, "worker", "--database-url", url, "--run", "task=sh -c '"+script+"'")
	id := query[int64](t, pool, "select jobq.enqueue('task', backoff_base => '1 ms')")
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", id)
	require.JSONEq(t, `{"at": 7}`, query[string](t, pool, "select result::text from jobq.job where id = $1", id))
	require.Equal(t, 1, query[int](t, pool, "select attempts from jobq.job where id = $1", id))
	require.JSONEq(t, `{"x": 1, "y": 2}`, query[string](t, pool, "select args::text from jobq.job where kind = 'other' and queue = 'elsewhere'"))
	require.Equal(t, 2, query[int](t, pool, "select count(*)::integer from jobq.unique_key k join jobq.pending p on p.id = k.job_id where k.kept_until > now()"))
	require.Equal(t, 1, query[int](t, pool, "select count(*)::integer from jobq.unique_key where key like 'u %+259200000s'"))

	for want, args := range map[string][]string{
		"JOBQ_CONTROL_FD": {"job", "snooze", "10m"}, "0 to 100": {"job", "progress", "NaN"}, "not JSON": {"job", "result", "{"},
		"duration": {"job", "snooze", "soon"}, "give a percentage": {"job", "progress"},
	} {
		_, stderr, code := invoke(t, "", args...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want, args)
	}
}

// What a program writes can be followed while it runs, through its attempts,
// and what it has used is kept.
func TestLogs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	startProcess(t, "worker", "--database-url", url, "--run", fmt.Sprintf(
		`task=sh -c 'printf "one \033[31m \303"; until [ -e %[1]s/go ]; do sleep 0.01; done; printf "\244 two\n"; [ $JOBQ_ATTEMPT = 2 ]'`, folder))
	id := fmt.Sprint(query[int64](t, pool, "select jobq.enqueue('task', backoff_base => '1 ms')"))
	follower := startProcess(t, "logs", "-f", id, "--database-url", url)
	follower.awaitLog(t, "one ␛[31m ")
	begun := time.Now()
	out, _, code := invoke(t, "", "show", id, "--database-url", url)
	require.Zero(t, code)
	require.Contains(t, out, "output so far\n    one ␛[31m")
	require.NoError(t, os.WriteFile(folder+"/go", nil, 0o600))
	follower.awaitLog(t, "ä two")
	t.Logf("output was seen %s after it was written", time.Since(begun).Round(time.Millisecond))
	require.NoError(t, follower.Wait())
	require.Equal(t, 2, strings.Count(follower.log.String(), "ä two"), "the second attempt is followed as well")

	out, _, code = invoke(t, "", "logs", id, "--database-url", url)
	require.Zero(t, code)
	require.Equal(t, "one ␛[31m ä two\n", out)
	out, _, code = invoke(t, "", "show", id, "--database-url", url)
	require.Zero(t, code)
	require.Regexp(t, `exit code 1, \d+ms of CPU, at most [1-9][0-9.]* MiB of memory`, out)
	require.Contains(t, out, "exit code 0,")
}

// A config file says how kinds are run, flags win over it, and exec jobs run
// only where that is allowed.
func TestConfigFileAndExec(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	file := folder + "/jobq.yaml"
	require.NoError(t, os.WriteFile(file, []byte(`
queues: {work: 3}
kinds:
  shown:
    command: [sh, -c, 'echo "$0 $MODE $PWD"; ulimit -n', '${args.name}']
    env: {MODE: fast}
    cwd: `+folder+`
    limits: {open_files: 77}
    slots: 1
  replaced: {command: "false"}
  exec: {env: {MODE: by config}}
`), 0o600))
	enqueue := func(input string, args ...string) {
		_, stderr, code := invoke(t, input, append([]string{"enqueue", "--database-url", url, "-q", "work", "--max-attempts", "1"}, args...)...)
		require.Zero(t, code, stderr)
	}
	enqueue("", "shown", `{"name": "a b"}`)
	enqueue("", "replaced")
	worker := []string{"worker", "--database-url", url, "--config", file, "--run", "replaced=echo by flag", "--exit-when-empty"}
	_, stderr, code := invoke(t, "", worker...)
	require.Zero(t, code, stderr)
	output := func(kind string) string {
		return query[string](t, pool, "select string_agg(a.output, '' order by j.id) from jobq.attempt a join jobq.job j on j.id = a.job_id and j.kind = $1 and j.state = 'completed'", kind)
	}
	require.Equal(t, "a b fast "+folder+"\n77\n", output("shown"))
	require.Equal(t, "by flag\n", output("replaced"))

	enqueue("", "--exec", "--", "sh", "-c", "echo one $MODE")
	enqueue("echo two 'a  b' $MODE\n\necho three\n", "--exec", "-")
	enqueue(`{"cmd": ["sh", "-c", "echo $MODE; pwd"], "env": {"MODE": "four"}, "cwd": "/"}`+"\n", "--exec", "--ndjson")
	_, stderr, code = invoke(t, "", worker...)
	require.Zero(t, code, stderr)
	require.Equal(t, 4, query[int](t, pool, "select count(*) from jobq.job where kind = 'exec' and state = 'available'"))
	_, stderr, code = invoke(t, "", append(worker, "--allow-exec")...)
	require.Zero(t, code, stderr)
	require.Equal(t, "one by config\ntwo a  b $MODE\nthree\nfour\n/\n", output("exec"))

	enqueue("", "replaced")
	_, stderr, code = invoke(t, "", "worker", "--database-url", url, "--config", file, "--max-consecutive-failures", "1")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "too many runs in a row")
	for want, args := range map[string][]string{
		"knids is not known: there are queues": {"worker", "--config", folder + "/bad.yaml"},
		"no such file":                         {"worker", "--config", folder + "/none.yaml"},
		"the command is empty":                 {"enqueue", "--exec", "--ndjson"},
	} {
		require.NoError(t, os.WriteFile(folder+"/bad.yaml", []byte("knids: {}"), 0o600))
		_, stderr, code := invoke(t, "{}\n", append(args, "--database-url", url)...)
		require.Equal(t, exitUsage, code, args)
		require.Contains(t, stderr, want, args)
	}
}
