package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/cmd/jobq/internal/crashtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The worker of a jobq.yaml is killed with its programs. One that has its effect first
// has it twice; one that ends its job in the same transaction, once. The exit code, the table and
// the JSON say so.
func TestCrashTestCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(context.Background(), "create table public.effect (job bigint, n integer)")
	require.NoError(t, err)
	file := t.TempDir() + "/jobq.yaml"
	require.NoError(t, os.WriteFile(file, []byte(`
kinds:
  pays-first:
    command: [sh, -c, 'psql "$DATABASE_URL" -qAtX -c "insert into public.effect values ($JOBQ_JOB_ID, $(cat | tr -dc 0-9))"']
    env: {DATABASE_URL: "`+url+`"}
  pays-once:
    command:
    - sh
    - -c
    - |
      echo "begin; insert into public.effect values (:id); select jobq.complete(:id, :'token'); commit;" |
        psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -v id="$JOBQ_JOB_ID" -v token="$JOBQ_RUN_TOKEN"
    env: {DATABASE_URL: "`+url+`"}
    ends_itself: true
`), 0o600))
	crashTest := func(kind string, more ...string) (stdout, stderr string, code int) {
		t.Helper()
		args := append([]string{
			"crash-test", "--database-url", url, "--kind", kind, "--config", file, "--args", `{"n": {{n}}}`, "--jobs", "2", "--forced", "2",
			"--effect-query", "select job, count(*) from public.effect group by 1",
		}, more...)
		command := exec.Command(os.Args[0], args...)
		command.Env = append(os.Environ(), asCommand+"=1")
		var out, errs strings.Builder
		command.Stdout, command.Stderr = &out, &errs
		_ = command.Run() // its exit code is looked at
		return out.String(), errs.String(), command.ProcessState.ExitCode()
	}

	out, errs, code := crashTest("pays-first")
	require.Equal(t, exitError, code, "%s\n%s", out, errs)
	require.Contains(t, out, "2 jobs of kind pays-first, 2 killed between effect and completion, 0 random kills\n")
	require.Contains(t, out, "twice    1    1  2        1        after the effect  completed")
	require.Contains(t, out, "jobs with more than one effect: 2; completed without an effect: 0; not completed: 0\n")
	require.Contains(t, errs, "killed the worker between the effect and the completion of job 2 (2 of 2)\n")
	require.Equal(t, "{1,1,2,2}", query[string](t, pool, "select array_agg(n order by n)::text from public.effect"))

	out, errs, code = crashTest("pays-once", "--json", "--seed", "7")
	require.Equal(t, exitOK, code, "%s\n%s", out, errs)
	var result crashtest.Result
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	require.Equal(t, crashtest.Result{
		OK: true, Kind: "pays-once", Jobs: 2, Forced: 2, Seed: 7, Twice: []crashtest.Job{}, Never: []crashtest.Job{}, Failed: []crashtest.Job{},
	}, result)
	require.Zero(t, query[int](t, pool, "select count(*)::int from jobq.worker"), "the last worker was told to end")
}

// A crash test whose terminal is closed ends the worker. Method: SIGHUP, when the worker has begun.
func TestCrashTestHangup(t *testing.T) {
	t.Parallel()
	pid := t.TempDir() + "/pid"
	command := exec.Command(os.Args[0], "crash-test", "--database-url", pgtest.URL(t), "--kind", "k", "--effect-query", "select 1, 2", "--",
		"sh", "-c", `echo $$ >"$0.new" && mv "$0.new" "$0" && exec sleep 1000`, pid)
	command.Env = append(os.Environ(), asCommand+"=1")
	require.NoError(t, command.Start())
	require.Eventually(t, func() bool { _, err := os.Stat(pid); return err == nil }, 5*time.Minute, 5*time.Millisecond)
	require.NoError(t, command.Process.Signal(syscall.SIGHUP))
	require.Error(t, command.Wait())
	require.Equal(t, exitError, command.ProcessState.ExitCode())
	content, err := os.ReadFile(pid)
	require.NoError(t, err)
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(content)) + "/stat")
	require.True(t, err != nil || strings.Contains(string(stat), ") Z "), "runs: %s", stat)
}

// A command line that makes no sense is refused, with what to write.
func TestCrashTestUsage(t *testing.T) {
	t.Parallel()
	all := []string{"crash-test", "--kind", "k", "--effect-query", "select 1, 2"}
	for want, args := range map[string][]string{
		"--kind is missing":                                  {"crash-test", "--effect-query", "select 1, 2", "--", "w"},
		"--effect-query is missing":                          {"crash-test", "--kind", "k", "--", "w"},
		"write its command after --, or use --config":        all,
		"a worker's command and --config exclude":            append(all[:5:5], "--config", "f", "--", "w"),
		"--forced 3: there are only 2 jobs":                  append(all[:5:5], "--jobs", "2", "--forced", "3", "--", "w"),
		"--jobs must be 1 to 100000":                         append(all[:5:5], "--jobs", "0", "--", "w"),
		"must not be negative":                               append(all[:5:5], "--random", "-1", "--", "w"),
		"--random 4: all jobs are forced ones":               append(all[:5:5], "--jobs", "3", "--random", "4", "--", "w"),
		"--forced and --random must be 10000 together":       append(all[:5:5], "--random", "10000", "--", "w"),
		"--timeout must be more than 0":                      append(all[:5:5], "--timeout", "0", "--", "w"),
		"no database given: use --database-url or --context": append(all[:5:5], "--", "w"),
	} {
		_, stderr, code := invoke(t, "", args...)
		require.Equal(t, exitUsage, code, want)
		require.Contains(t, stderr, want)
	}
}
