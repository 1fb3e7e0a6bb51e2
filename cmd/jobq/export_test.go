package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// exportHistory makes a history of three days that are over: of 250 jobs and 600 recorded
// runs on the first, which it returns, of none on the second, and of one job on the third.
func exportHistory(t *testing.T, pool *pgxpool.Pool) (first time.Time) {
	t.Helper()
	first = query[time.Time](t, pool, "select (now() at time zone 'UTC')::date - 3")
	for _, sql := range []string{
		`select jobq.partition_add(p, (now() at time zone 'UTC')::date - ago)
			from unnest(array['run', 'past_lease', 'attempt']) p, generate_series(1, 3) ago`,
		`insert into jobq.past_lease (id, claimed_at, owner, ended)
			select jobq.lease_day($1::date) + l, $1::date::timestamp at time zone 'UTC' + l * interval '1 s', 'w', array_fill(5, array[50])::smallint[] from generate_series(1, 4) l`,
		`insert into jobq.run (id, lease_id, slot, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select i, jobq.lease_day($1::date) + 1 + i / 50, i % 50 + 1, now(), now(), 0, 0, 1, 0, false, 'q', 'k', jsonb_build_object('text', '<' || i || '>') from generate_series(0, 199) i where i > 0`,
		`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, last_error)
			select i, jobq.lease_day($1::date) + 100 + i, 1, 'failed', $1::date::timestamp at time zone 'UTC' + interval '5 h', now(), now(), 0, 1, 1, 0, false, 'q', 'k', '{}', 'broken'
			from generate_series(200, 250) i`,
		`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args)
			select 1000, jobq.lease_day($1::date + 2), 1, 'cancelled', now(), now(), now(), 0, 1, 1, 0, false, 'q', 'k', '{}'`,
		`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
			select i, $1::date::timestamp at time zone 'UTC' + i * interval '1 s', now(), 1, 'failed', 1, 'w' from generate_series(1, 600) i`,
	} {
		var args []any
		if strings.Contains(sql, "$1") {
			args = []any{first}
		}
		_, err := pool.Exec(t.Context(), sql, args...)
		require.NoError(t, err, sql)
	}
	return first
}

// linesOf reads an export, and requires that it has each of its jobs and runs once, between
// its first and its last line.
func linesOf(t *testing.T, content string) (begin exportBegin, jobs []int64, runs int, end exportEnd) {
	t.Helper()
	require.True(t, strings.HasSuffix(content, "\n"))
	lines := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	for i, text := range lines {
		var line exportLine
		require.NoError(t, json.Unmarshal([]byte(text), &line), text)
		require.Equal(t, i == 0, line.Begin != nil, text)
		require.Equal(t, i == len(lines)-1, line.End != nil, text)
		switch {
		case line.Begin != nil:
			begin = *line.Begin
		case line.Job != nil:
			jobs = append(jobs, line.Job.ID)
		case line.Attempt != nil:
			runs++
			require.EqualValues(t, runs, line.Attempt.JobID)
		case line.End != nil:
			end = *line.End
		}
	}
	return begin, jobs, runs, end
}

// Each day that is over is in a file of its own, whole, and recorded. An export that was cut off in
// the middle of a line goes on where it was: what it has is not read again. No file is
// overwritten when a day is exported again.
func TestExport(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	first := exportHistory(t, pool)
	dir := t.TempDir()
	day := func(days int) string { return first.AddDate(0, 0, days).Format(time.DateOnly) }
	path := func(days int, suffix string) string { return filepath.Join(dir, day(days)+suffix) }
	command := func(args ...string) (out, stderr string) {
		out, stderr, code := invoke(t, "", append(args, "--database-url", url)...)
		require.Zero(t, code, stderr)
		return out, stderr
	}
	export := func(more ...string) (out, stderr string) {
		return command(append([]string{"export", "--dir", dir}, more...)...)
	}
	read := func(name string) string {
		content, err := os.ReadFile(name) // #nosec G304 -- a file of the test
		require.NoError(t, err)
		return string(content)
	}
	command("settings", "set", "keep_until_exported", "true")

	out, _ := export("--before", day(1))
	require.Equal(t, day(0)+": 250 jobs and 600 attempts in "+path(0, ".ndjson")+"\n", out)
	whole := read(path(0, ".ndjson"))
	begin, jobs, runs, end := linesOf(t, whole)
	require.Equal(t, day(0), begin.Day)
	require.Len(t, jobs, 250)
	require.IsIncreasing(t, jobs)
	require.Equal(t, 600, runs)
	require.Equal(t, exportEnd{day(0), 250, 600}, end)
	require.Contains(t, whole, `{"text":"<17>"}`)
	require.Contains(t, whole, `"state":"completed"`)
	shown, _ := command("settings", "exported_before", "--json")
	require.Contains(t, shown, day(1))
	audited, _ := command("audit", "--json")
	require.Contains(t, audited, `"action": "export"`)

	// Cut off among the jobs, and among the runs; what is in the file already has gone from
	// the database meanwhile.
	for _, part := range []int{len(whole) / 4, len(whole) - 300} {
		require.NoError(t, os.Remove(path(0, ".ndjson")))
		require.NoError(t, os.WriteFile(path(0, ".ndjson.part"), []byte(whole[:part]), 0o600))
		_, err := pool.Exec(t.Context(), "delete from jobq.run where id = 1")
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), "update jobq.setting set exported_before = $1, export_day = $1, export_began_at = $2", first, begin.BeganAt)
		require.NoError(t, err)
		export("--before", day(1))
		require.Equal(t, whole, read(path(0, ".ndjson")))
		require.NoFileExists(t, path(0, ".ndjson.part"))
	}

	// A job that still runs keeps its day, and those after it, from being exported.
	_, err := pool.Exec(t.Context(), "insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (jobq.lease_day($1::date) + 9, now(), now() + interval '1 h', 'w', 'q', '{1000}')", first.AddDate(0, 0, 2))
	require.NoError(t, err)
	out, stderr := export("--before", day(3))
	require.Equal(t, day(1)+": 0 jobs and 0 attempts in "+path(1, ".ndjson")+"\n", out)
	require.Contains(t, stderr, "not yet: "+day(2)+" cannot be exported yet: ")
	require.Contains(t, stderr, "still run")
	require.NoFileExists(t, path(2, ".ndjson.part"))
	_, err = pool.Exec(t.Context(), "delete from jobq.lease")
	require.NoError(t, err)

	// Two at once do not write the same file.
	other, err := os.OpenFile(path(2, ".ndjson.part"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	_, stderr, code := invoke(t, "", "export", "--dir", dir, "--database-url", url)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "another export is writing it")
	require.NoError(t, other.Close())
	out, _ = export("--before", day(3), "--json")
	require.Contains(t, out, day(2)+".ndjson\"")

	// An undo brings a job back: its day, and those after it, are exported again.
	command("requeue", "250")
	command("undo", query[string](t, pool, "select max(id)::text from jobq.audit"))
	out, _ = export("--before", day(1))
	require.Contains(t, out, path(0, ".2.ndjson"))
	require.Equal(t, whole, read(path(0, ".ndjson")))
	_, jobs, _, _ = linesOf(t, read(path(0, ".2.ndjson")))
	require.Len(t, jobs, 249)

	out, _ = command("export", "--day", day(0))
	_, jobs, runs, _ = linesOf(t, out)
	require.Len(t, jobs, 249)
	require.Equal(t, 600, runs)
}

// What cannot be meant is refused.
func TestExportRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"either --dir, for files, or --day": {},
		"must be a day":                     {"--day", "yesterday"},
		"are for --dir":                     {"--day", "2026-11-02", "--before", "2026-11-03"},
	} {
		_, stderr, code := invoke(t, "", append([]string{"export"}, args...)...)
		require.Equal(t, exitUsage, code, want)
		require.Contains(t, stderr, want)
	}
}
