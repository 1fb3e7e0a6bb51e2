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
	// Three days that can be exported: the last is over for ten minutes.
	first = query[time.Time](t, pool, "select ((now() - interval '10 minutes') at time zone 'UTC')::date - 3")
	for _, sql := range []string{
		`select jobq.partition_add(p, $1::date + i) from unnest(array['run', 'past_lease', 'attempt']) p, generate_series(0, 2) i`,
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

// archive is a folder for exports, and the history that exportHistory makes.
type archive struct {
	*testing.T
	url, dir string
	pool     *pgxpool.Pool
	first    time.Time
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	url := pgtest.URL(t)
	a := &archive{T: t, url: url, dir: t.TempDir(), pool: pgtest.Connect(t, url)}
	a.first = exportHistory(t, a.pool)
	return a
}

// day is the first day of the history, or so many days later.
func (a *archive) day(days int) string { return a.first.AddDate(0, 0, days).Format(time.DateOnly) }

func (a *archive) path(days int, suffix string) string {
	return filepath.Join(a.dir, a.day(days)+suffix)
}

func (a *archive) read(days int, suffix string) string {
	a.Helper()
	content, err := os.ReadFile(a.path(days, suffix))
	require.NoError(a, err)
	return string(content)
}

func (a *archive) exec(sql string, args ...any) {
	a.Helper()
	_, err := a.pool.Exec(a.Context(), sql, args...)
	require.NoError(a, err)
}

func (a *archive) command(args ...string) (out, stderr string) {
	a.Helper()
	out, stderr, code := invoke(a.T, "", append(args, "--database-url", a.url)...)
	require.Zero(a, code, stderr)
	return out, stderr
}

// export exports up to a day.
func (a *archive) export(before int, more ...string) (out, stderr string) {
	a.Helper()
	return a.command(append([]string{"export", "--dir", a.dir, "--before", a.day(before)}, more...)...)
}

// A day that is over is in a file of its own, whole, and recorded. An export that was cut off in
// the middle of a line goes on where it was: what it has is not read again.
func TestExport(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	out, _ := a.export(1)
	require.Equal(t, a.day(0)+": 250 jobs and 600 attempts in "+a.path(0, ".ndjson")+"\n", out)
	whole := a.read(0, ".ndjson")
	begin, jobs, runs, end := linesOf(t, whole)
	require.Equal(t, a.day(0), begin.Day)
	require.Len(t, jobs, 250)
	require.IsIncreasing(t, jobs)
	require.Equal(t, 600, runs)
	require.Equal(t, exportEnd{Day: a.day(0), Jobs: 250, Attempts: 600}, end)
	require.NotContains(t, whole, `"recorded"`)
	require.Contains(t, whole, `{"text":"<17>"}`)
	require.Contains(t, whole, `"state":"completed"`)
	shown, _ := a.command("settings", "exported_before")
	require.Contains(t, shown, a.day(1))
	audited, _ := a.command("audit", "--json")
	require.Contains(t, audited, `"action": "export"`)

	// Cut off among the jobs, and among the runs; what is in the file already has gone from
	// the database meanwhile.
	for _, part := range []int{len(whole) / 4, len(whole) - 300} {
		require.NoError(t, os.Remove(a.path(0, ".ndjson")))
		require.NoError(t, os.WriteFile(a.path(0, ".ndjson.part"), []byte(whole[:part]), 0o600))
		a.exec("delete from jobq.run where id = 1")
		a.exec("update jobq.setting set exported_before = $1, export_day = $1, export_began_at = $2", a.first, begin.BeganAt)
		a.export(1)
		require.Equal(t, whole, a.read(0, ".ndjson"))
		require.NoFileExists(t, a.path(0, ".ndjson.part"))
	}
}

// A job that still runs keeps its day, and those after it, from being exported; and two exports
// at once do not write the same file.
func TestExportNotYet(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec("insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) values (jobq.lease_day($1::date) + 9, now(), now() + interval '1 h', 'w', 'q', '{1000}')",
		a.first.AddDate(0, 0, 2))
	out, stderr := a.export(3)
	require.Contains(t, out, a.day(1)+": 0 jobs and 0 attempts in "+a.path(1, ".ndjson")+"\n")
	require.Contains(t, stderr, "not yet: "+a.day(2)+" cannot be exported yet: ")
	require.Contains(t, stderr, "still run")
	require.NoFileExists(t, a.path(2, ".ndjson"))
	require.NoFileExists(t, a.path(2, ".ndjson.part"))
	a.exec("delete from jobq.lease")

	other, err := os.OpenFile(a.path(2, ".ndjson.part"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(other.Fd()), syscall.LOCK_EX))
	_, stderr, code := invoke(t, "", "export", "--dir", a.dir, "--database-url", a.url)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "another export is writing it")
	require.NoError(t, other.Close())
	var done exported
	out, _ = a.export(3, "--json")
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	require.Equal(t, a.day(3), done.Next)
	require.Equal(t, []exportedDay{{a.day(2), a.path(2, ".ndjson"), 1, 0, done.Days[0].AuditID}}, done.Days)
	_, stderr = a.export(3)
	require.Equal(t, "nothing to export; the next day is "+a.day(3)+"\n", stderr)
}

// When an undo brings a job back, its day is exported again, and no file is overwritten.
func TestExportAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.command("requeue", "249")
	requeued := query[string](t, a.pool, "select max(id)::text from jobq.audit")
	a.export(2)
	before := a.read(0, ".ndjson")
	_, jobs, _, _ := linesOf(t, before)
	require.Len(t, jobs, 249)
	a.command("undo", requeued)
	out, _ := a.export(1)
	require.Contains(t, out, a.path(0, ".2.ndjson"))
	require.Equal(t, before, a.read(0, ".ndjson"))
	_, jobs, _, _ = linesOf(t, a.read(0, ".2.ndjson"))
	require.Len(t, jobs, 250)

	out, _ = a.command("export", "--day", a.day(0))
	begin, jobs, runs, end := linesOf(t, out)
	require.Equal(t, new(false), begin.Recorded)
	require.Equal(t, new(false), end.Recorded)
	require.Len(t, jobs, 250)
	require.Equal(t, 600, runs)
}

// The role of operators can export, that of viewers can write a day to standard output, and
// no other role records an export.
func TestExportAsRoles(t *testing.T) {
	t.Parallel()
	pool, as := rolesServer(t)
	first := exportHistory(t, pool)
	day, dir := first.Format(time.DateOnly), t.TempDir()
	_, stderr, code := invoke(t, "", "export", "--dir", dir, "--database-url", as("viewer"))
	require.Equal(t, exitError, code, stderr)
	out, stderr, code := invoke(t, "", "export", "--day", day, "--database-url", as("viewer"))
	require.Zero(t, code, stderr)
	_, jobs, _, _ := linesOf(t, out)
	require.Len(t, jobs, 250)
	out, stderr, code = invoke(t, "", "export", "--dir", dir, "--database-url", as("admin"))
	require.Zero(t, code, stderr)
	require.Contains(t, out, day+": 250 jobs and 600 attempts")
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
