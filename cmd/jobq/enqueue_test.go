package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// A line is one job, in text that is what it was: anything else is refused by
// its number, and adds nothing.
func TestEnqueueRefusesLines(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for _, test := range []struct {
		line, want string
		args       []string
	}{
		{`{"kind": "a"}{"kind": "b"}`, "more after the end", []string{"--ndjson"}},
		{`{"kind": "a"} x`, "more after the end", []string{"--ndjson"}},
		{`{"kind": "a", "run_at": "tomorrow"}`, `run_at must be like "2026-12-31T23:59:00Z", not "tomorrow" (nothing was added)`, []string{"--ndjson"}},
		{`{"kind": "a", "run_at": 5}`, "run_at must be like", []string{"--ndjson"}},
		{`{"kind": "a", "priority": "x"}`, "priority must be a whole number from -32768 to 32767, not string", []string{"--ndjson"}},
		{`{"kind": 5}`, "kind must be a text, not number", []string{"--ndjson"}},
		{`{"kind": "a", "tags": "x"}`, "tags must be a list of texts, not string", []string{"--ndjson"}},
		{`{"cmd": "ls"}`, "cmd must be a list of texts, not string", []string{"--exec", "--ndjson"}},
		{`{"cmd": ["ls"], "env": {"A": 1}}`, "must be a text, not number", []string{"--exec", "--ndjson"}},
		{`[1]`, "a line must be a JSON object, not array", []string{"--ndjson"}},
		{`{"kin": "a"}`, `not a job: unknown field "kin"`, []string{"--ndjson"}},
		{`{"kind": "a"`, "the line ends in the middle", []string{"--ndjson"}},
		{`{"cmd": [""]}`, "the command is empty", []string{"--exec", "--ndjson"}},
		{`{"cmd": ["a"]} ["b"]`, "more after the end", []string{"--exec", "--ndjson"}},
		{"{\"kind\": \"a\", \"unique_key\": \"caf\xe9\"}", "not valid UTF-8", []string{"--ndjson"}},
		{"cat caf\xe9", "not valid UTF-8", []string{"--exec", "-"}},
		{"\"caf\xe9\"", "not valid UTF-8", []string{"a", "-"}},
		{`{"kind": "a", "unique_key": ""}`, "unique_key must be 1 to 255", []string{"--ndjson"}},
		{`{"kind": "a", "uniqueness": {"by": []}}`, "by must be 1 to 32 names", []string{"--ndjson"}},
		{`{"kind": "a", "uniqueness": {"key": "x"}}`, `unknown field "key"`, []string{"--ndjson"}},
		{`{"kind": "a", "uniqueness": {"by": ["*"], "for": "0s"}}`, `a time must be like "10m"`, []string{"--ndjson"}},
		{`{"kind": "a", "uniqueness": {"by": ["*"], "on_conflict": ""}}`, "on_conflict must be skip, replace or fail", []string{"--ndjson"}},
		{`{"kind": "a", "queue": ""}`, "queue must be 1 to 128", []string{"--ndjson"}},
		{`{"kind": "a", "max_attempts": 0}`, "max_attempts must be 1 to 32767", []string{"--ndjson"}},
		{`{"kind": "a", "max_lost": 0}`, "max_lost must be 1 to 32767", []string{"--ndjson"}},
		{`{"kind": "a", "timeout": 5}`, `a time must be like "10m"`, []string{"--ndjson"}},
		{`{"kind": "a", "name": "n"}`, "only the jobs of --graph have names", []string{"--ndjson"}},
		{`{"kind": "a", "after": ["n"]}`, "only the jobs of --graph have names", []string{"--ndjson"}},
		{`{"kind": "a", "after": 5}`, "after must be a list of ids and names, not number", []string{"--graph"}},
		{`{"kind": "a", "after": [0]}`, "after must be ids and names of jobs, not 0 (nothing was added)", []string{"--graph"}},
		{`{"kind": "a", "queue": ""}`, "queue must be 1 to 128", []string{"--graph"}},
		{"{\"kind\": \"caf\xe9\"}", "not valid UTF-8", []string{"--graph"}},
		{`{"kind": "a", "timeout": "0s"}`, `a time must be like "10m"`, []string{"--ndjson"}},
	} {
		_, stderr, code := invoke(t, test.line+"\n", append([]string{"enqueue", "--database-url", url}, test.args...)...)
		require.Equal(t, exitUsage, code, test.line)
		require.Contains(t, stderr, "line 1: ", test.line)
		require.Contains(t, stderr, test.want, test.line)
	}
	_, stderr, code := invoke(t, "", "enqueue", "--database-url", url, "--exec", "--", "cat", "caf\xe9")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "not valid UTF-8")
	require.Zero(t, query[int](t, pgtest.Connect(t, url), "select count(*) from jobq.job"))
}

// What a line gives wins over the flags, also when it is zero; what it leaves
// out, or says is null, the flags say.
func TestEnqueueLineAndFlags(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	_, stderr, code := invoke(t, `{"kind": "a", "priority": 0, "timeout": "10m", "backoff_base": "2s", "backoff_max": "1h"}
		{"kind": "b", "priority": null}`+"\n", "enqueue", "--ndjson", "--priority", "10", "--timeout", "1m", "--database-url", url)
	require.Zero(t, code, stderr)
	require.Equal(t, "0 00:10:00 00:00:02 01:00:00", query[string](t, pool, "select concat_ws(' ', priority, timeout, backoff_base, backoff_max) from jobq.pending where kind = 'a'"))
	require.Equal(t, "10 00:01:00", query[string](t, pool, "select concat_ws(' ', priority, timeout) from jobq.pending where kind = 'b'"))
}

// A tag is one tag, whatever is in it; an empty one, as an unset variable of a script makes it, is none.
func TestTagsAreWhole(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	command := func(args ...string) {
		t.Helper()
		_, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Zero(t, code, stderr)
	}
	tags := func(from string) []string { return query[[]string](t, pool, "select tags from jobq."+from) }
	command("enqueue", "a", "--tag", "a,b", "--tag", `say "hi"`, "--tag", "")
	require.Equal(t, []string{"a,b", `say "hi"`}, tags("job where id = 1"))
	command("edit", "1", "--tag", `"c", d`)
	require.Equal(t, []string{`"c", d`}, tags("job where id = 1"))
	command("edit", "1", "--tag", "")
	require.Empty(t, tags("job where id = 1"))
	command("schedules", "add", "s", "--kind", "a", "--every", "1h", "--tag", "x,y", "--tag", `"z`)
	require.Equal(t, []string{"x,y", `"z`}, tags("schedule"))
}

// Fields of --unique-by are separated by commas, and nothing else in them has a meaning.
func TestUniqueByFields(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	add := func(args string, by ...string) string {
		t.Helper()
		out, stderr, code := invoke(t, "", append([]string{"enqueue", "a", args, "--database-url", url}, by...)...)
		require.Zero(t, code, stderr)
		return strings.TrimSpace(out)
	}
	first := add(`{"id": 1, "say \"hi\"": 2, "at": 3}`, "--unique-by", `id, say "hi"`)
	require.Equal(t, first, add(`{"id": 1, "say \"hi\"": 2, "at": 4}`, "--unique-by", "id", "--unique-by", `say "hi"`))
	require.NotEqual(t, first, add(`{"id": 1, "say \"hi\"": 5, "at": 4}`, "--unique-by", `id,say "hi"`))
	require.Equal(t, 2, query[int](t, pool, "select count(*)::int from jobq.job"))
	for by, want := range map[string]string{"id,,at": `--unique-by "id,,at": an item is empty`, "": "--unique-by is empty"} {
		_, stderr, code := invoke(t, "", "enqueue", "a", `{"id": 1}`, "--unique-by", by, "--database-url", url)
		require.Equal(t, exitUsage, code)
		require.Contains(t, stderr, want)
	}
}

// The backoff of a job is given on the command line as in a line, in jobq's durations or SQL's.
func TestEnqueueBackoff(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	enqueue := func(input string, args ...string) (stderr string, code int) {
		_, stderr, code = invoke(t, input, append([]string{"enqueue", "--database-url", url}, args...)...)
		return stderr, code
	}
	stored := func(id int) string {
		return query[string](t, pool, "select concat_ws(' ', backoff_base, backoff_max, timeout) from jobq.job where id = $1", id)
	}
	stderr, code := enqueue("", "a", "--backoff-base", "2s", "--backoff-max", "1h")
	require.Zero(t, code, stderr)
	require.Equal(t, "00:00:02 01:00:00", stored(1))
	stderr, code = enqueue(`{"kind": "a", "backoff_base": "30 seconds", "timeout": "1 hour 30 minutes"}`, "--ndjson", "--backoff-max", "2 days")
	require.Zero(t, code, stderr)
	require.Equal(t, "00:00:30 2 days 01:30:00", strings.ReplaceAll(stored(2), "48:00:00", "2 days"))
	stderr, code = enqueue("", "a", "--backoff-base", "0")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--backoff-base must be more than 0")
	stderr, code = enqueue("", "a", "--backoff-base", "1 month")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "a month or a year has no fixed length: write days, such as 30d")
}

// A byte order mark, which programs of Windows put before a text, is no part of it. A text in UTF-16 is refused by name.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	const mark = "\ufeff"
	file := t.TempDir() + "/args.json"
	require.NoError(t, os.WriteFile(file, []byte(mark+`{"id": 3}`), 0o600))
	for _, test := range []struct {
		input string
		args  []string
	}{
		{mark + `{"kind": "a"}` + "\r\n" + `{"kind": "a"}` + "\r\n", []string{"--ndjson"}},
		{mark + `{"kind": "a", "name": "n"}` + "\n", []string{"--graph"}},
		{mark + `{"id": 1}` + "\n", []string{"a", "-"}},
		{mark + "ls -l\n", []string{"--exec", "-"}},
		{mark + `{"cmd": ["ls"]}` + "\n", []string{"--exec", "--ndjson"}},
		{"", []string{"a", "@" + file}},
		{mark + "\n", []string{"--ndjson"}},
	} {
		_, stderr, code := invoke(t, test.input, append([]string{"enqueue", "--database-url", url}, test.args...)...)
		require.Zero(t, code, "%v: %s", test.args, stderr)
	}
	require.Equal(t, 7, query[int](t, pool, "select count(*)::int from jobq.job"))
	require.Equal(t, "ls", query[string](t, pool, "select args -> 'cmd' ->> 0 from jobq.job where kind = 'exec' order by id limit 1"))
	_, stderr, code := invoke(t, mark+`{"id": 4}`, "edit", "1", "--args", "-", "--database-url", url)
	require.Zero(t, code, stderr)

	for _, text := range []string{"\xff\xfe{\x00}\x00\n\x00", "\xfe\xff\x00{\x00}\x00\n"} {
		for _, args := range [][]string{{"--ndjson"}, {"--graph"}, {"a", "-"}, {"--exec", "-"}} {
			_, stderr, code := invoke(t, text, append([]string{"enqueue", "--database-url", url}, args...)...)
			require.Equal(t, exitUsage, code, args)
			require.Contains(t, stderr, "line 1: the text is UTF-16: save it as UTF-8 (nothing was added)", args)
		}
	}
}

// startEnqueue starts an enqueue of lines that the test writes.
func startEnqueue(t *testing.T, url string) (p *process, in io.WriteCloser) {
	t.Helper()
	p = &process{Cmd: exec.Command(os.Args[0], "enqueue", "a", "-", "--database-url", url), log: &syncBuffer{}}
	p.Env = append(os.Environ(), asCommand+"=1")
	p.Stdout, p.Stderr = p.log, p.log
	in, err := p.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p, in
}

// A pipe that stays open holds nothing back, and keeps no signal waiting.
func TestEnqueueOpenPipe(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	p, in := startEnqueue(t, url)
	for number := range 2 {
		_, err := fmt.Fprintln(in, "{}")
		require.NoError(t, err)
		p.awaitLog(t, fmt.Sprintf("%d\n", number+1))
	}
	require.Equal(t, 2, query[int](t, pool, "select count(*) from jobq.job"))
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Error(t, p.Wait())
	require.Contains(t, p.log.String(), "the jobs before line 3 were added")
	require.NotContains(t, p.log.String(), "may have been")
}

// Who hears nothing of a batch is told which lines may be in. Method: the batch
// waits for a lock until a signal ends the command.
func TestEnqueueWithoutAnswer(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	p, in := startEnqueue(t, url)
	_, err := fmt.Fprintln(in, "{}")
	require.NoError(t, err)
	p.awaitLog(t, "1\n")
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(ctx)) }()
	_, err = tx.Exec(ctx, "lock table jobq.pending in access exclusive mode")
	require.NoError(t, err)
	_, err = fmt.Fprint(in, "{}\n{}\n")
	require.NoError(t, err)
	eventually(t, pool, true, "select count(*) > 0 from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and not l.granted")
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.Error(t, p.Wait())
	require.Regexp(t, `\(the jobs before line 2 were added\) \(lines 2 to \d may have been`, p.log.String())
}

// Ids that cannot be written are an error: who reads them misses some.
func TestWriteErrors(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, full.Close()) }()
	for _, args := range [][]string{{"enqueue", "a", "-"}, {"enqueue", "a"}, {"list", "-o", "id"}, {"clone", "1"}} {
		var stderr bytes.Buffer
		code := run(context.Background(), append(args, "--database-url", url), strings.NewReader("{}\n"), full, &stderr)
		require.Equal(t, exitError, code, args)
		require.Contains(t, stderr.String(), "no space left", args)
	}
}

// A graph on standard input is added as a whole, in whatever order its lines are; without a
// name, a job waits and nobody waits for it.
func TestEnqueueGraph(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	enqueue := func(input string, args ...string) (stdout, stderr string, code int) {
		t.Helper()
		return invoke(t, input, append([]string{"enqueue", "--database-url", url}, args...)...)
	}
	old, _, code := enqueue("", "first")
	require.Equal(t, exitOK, code)
	old = strings.TrimSpace(old)
	stdout, stderr, code := enqueue(`{"kind": "last", "after": ["left", "right"], "after_failure": "run"}

		{"kind": "right", "name": "right", "after": ["left", `+old+`]}
		{"kind": "left", "name": "left"}
`, "--graph", "--queue", "q")
	require.Equal(t, exitOK, code, stderr)
	pool := pgtest.Connect(t, url)
	lines := strings.Fields(stdout)
	require.Len(t, lines, 3)
	for i, kind := range []string{"last", "right", "left"} {
		require.Equal(t, lines[i], query[string](t, pool, "select j.id::text from jobq.job j where j.queue = 'q' and j.kind = '"+kind+"'"))
	}
	require.Equal(t, "last-left/run last-right/run right-first/cancel right-left/cancel", query[string](t, pool, `
		select string_agg(c.kind || '-' || p.kind || '/' || d.on_failure, ' ' order by c.kind, p.kind)
		  from jobq.dependency d join jobq.job c on c.id = d.child join jobq.job p on p.id = d.parent`))

	last, right, left := lines[0], lines[1], lines[2]
	show := func(args ...string) (stdout string, code int) {
		stdout, _, code = invoke(t, "", append([]string{"show", "--graph", "--database-url", url}, args...)...)
		return stdout, code
	}
	shown, code := show(last)
	require.Equal(t, exitOK, code)
	var rows []string
	for row := range strings.Lines(shown) {
		rows = append(rows, strings.Join(strings.Fields(row), " "))
	}
	require.Equal(t, []string{
		"JOB STATE QUEUE KIND AFTER", old + " available default first", left + " available q left",
		right + " waiting q right " + old + ", " + left, last + " * waiting q last " + left + ", " + right,
	}, rows)
	shown, code = show(left, "--json")
	require.Equal(t, exitOK, code)
	var graph []monitor.GraphJob
	require.NoError(t, json.Unmarshal([]byte(shown), &graph))
	require.Len(t, graph, 3, "and not the other one for which the right one waits")
	_, code = show("4711")
	require.Equal(t, exitNotFound, code)

	stdout, _, code = enqueue(`{"kind": "a", "name": "n", "after": [`+old+`]}`+"\n", "--graph", "--json")
	require.Equal(t, exitOK, code)
	require.Contains(t, stdout, `"name":"n"`)
	stdout, _, code = enqueue("", "a", "--after", old+","+lines[0], "--after-failure", "wait")
	require.Equal(t, exitOK, code)
	require.Equal(t, 2, query[int](t, pool, "select count(*) from jobq.dependency d where d.on_failure = 'wait' and d.child = "+stdout))

	count := query[int](t, pool, "select count(*) from jobq.job")
	for input, want := range map[string]string{
		`{"kind": "a", "name": "a", "after": ["b"]}` + "\n" + `{"kind": "a", "name": "b", "after": ["a"]}`: "the jobs wait for one another: a, which waits for b, which waits for a",
		`{"kind": "a"}` + "\n" + `{"kind": "b", "after": [4711]}`:                                          `job "line 2": after: no such job: 4711`,
		`{"kind": "a"}` + "\n" + `{"kind": "b", "after": ["x"]}`:                                           `and there is no job with that name`,
	} {
		_, stderr, code := enqueue(input, "--graph")
		require.NotEqual(t, exitOK, code)
		require.Contains(t, stderr, want)
	}
	_, stderr, code = enqueue("", "a", "--graph")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--graph takes whole jobs")
	require.Equal(t, count, query[int](t, pool, "select count(*) from jobq.job"))
}
