package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The five profiles of docs/recovery.md, with real processes, their settings
// as given there and only the times made short: a second stands for some
// minutes. Each test ends with the time that the recovery took.

// profile is a database, and a folder in which jobs leave marks.
type profile struct {
	*testing.T
	url    string
	pool   *pgxpool.Pool
	folder string
}

func newProfile(t *testing.T, settings ...string) *profile {
	t.Helper()
	p := &profile{T: t, url: pgtest.URL(t), folder: t.TempDir()}
	p.pool = pgtest.Connect(t, p.url)
	if len(settings) > 0 {
		_, stderr, code := invoke(t, "", append([]string{"queues", "set", "default", "--database-url", p.url}, settings...)...)
		require.Zero(t, code, stderr)
	}
	return p
}

// worker starts a worker whose jobs mark their start and run until the test
// lets the attempt go.
func (p *profile) worker(args ...string) *process {
	p.Helper()
	script := fmt.Sprintf(`task=sh -c 'echo "$JOBQ_CLEAR_REASON" > %[1]s/$JOBQ_JOB_ID.begun.$JOBQ_ATTEMPT; `+
		`until [ "$(cat %[1]s/$JOBQ_JOB_ID.end 2>&1)" -le $JOBQ_ATTEMPT ] 2>&-; do sleep 0.02; done'`, p.folder)
	w := startProcess(p.T, append([]string{"worker", "--database-url", p.url, "--run", script, "--poll", "200ms"}, args...)...)
	w.awaitLog(p.T, "worker started")
	return w
}

func (p *profile) enqueue(options string) int64 {
	p.Helper()
	return query[int64](p.T, p.pool, "select jobq.enqueue('task'"+options+")")
}

// begun waits for a run's start and returns what it was told of the one before.
func (p *profile) begun(id int64, attempt int) string {
	p.Helper()
	name := fmt.Sprintf("%s/%d.begun.%d", p.folder, id, attempt)
	var content []byte
	require.Eventually(p, func() bool {
		var err error
		content, err = os.ReadFile(name)
		return err == nil && len(content) > 0
	}, patience, 5*time.Millisecond, "no %s", name)
	return strings.TrimSpace(string(content))
}

// end lets runs of the job come to an end, from the attempt on.
func (p *profile) end(id int64, attempt int) {
	p.Helper()
	require.NoError(p, os.WriteFile(fmt.Sprintf("%s/%d.end", p.folder, id), []byte(strconv.Itoa(attempt)), 0o600))
}

func (p *profile) kill(w *process) (at time.Time) {
	p.Helper()
	require.NoError(p, w.Process.Kill())
	_ = w.Wait()
	return query[time.Time](p.T, p.pool, "select clock_timestamp()")
}

// recovered waits for the job's second run and returns when the first was
// counted as lost.
func (p *profile) recovered(id int64, killed time.Time) (reason string, lost time.Time) {
	p.Helper()
	reason = p.begun(id, 2)
	lost = query[time.Time](p.T, p.pool, "select finished_at from jobq.attempt where job_id = $1 and outcome = 'lost'", id)
	p.Logf("recovered %s after the kill", lost.Sub(killed).Round(time.Millisecond))
	return reason, lost
}

func (p *profile) completed(id int64, attempt int) {
	p.Helper()
	p.end(id, attempt)
	eventually(p.T, p.pool, "completed", "select state::text from jobq.job where id = $1", id)
}

// (a) Long leases with a grace of the same length, every worker reaps: nothing
// is taken before lease and grace are over, and the log says how many were.
func TestProfileLongLeases(t *testing.T) {
	t.Parallel()
	p := newProfile(t, "lease=8s", "extend_every=1s", "stale_grace=2s")
	args := []string{"--janitor", "any", "--scan", "500ms", "--reconcile", "off"}
	victim := p.worker(args...)
	first, second := p.enqueue(""), p.enqueue("")
	p.begun(first, 1)
	p.begun(second, 1)
	survivor := p.worker(args...)
	extended := query[time.Time](t, p.pool, "select min(lease_expires_at) from jobq.job")
	killed := p.kill(victim)
	require.Equal(t, fmt.Sprintf("lease expired: worker %s stopped responding", p.owner(first)), p.reason(first, killed, extended.Add(2*time.Second)))
	p.recovered(second, killed)
	p.completed(first, 2)
	p.completed(second, 2)
	require.Regexp(t, `msg="released stale running jobs" janitor=any count=[12]`, survivor.log.String())
}

// owner is the worker that has lost the job.
func (p *profile) owner(id int64) string {
	p.Helper()
	eventually(p.T, p.pool, true, "select exists (select from jobq.attempt where job_id = $1 and outcome = 'lost')", id)
	return query[string](p.T, p.pool, "select worker_id from jobq.attempt where job_id = $1 and outcome = 'lost'", id)
}

// reason waits for the second run and checks that the first was not taken
// before the instant; it returns what the second was told.
func (p *profile) reason(id int64, killed, earliest time.Time) string {
	p.Helper()
	reason, lost := p.recovered(id, killed)
	require.False(p, lost.Before(earliest), "taken at %s, before %s", lost, earliest)
	return reason
}

// (a) With an interval of 0 nothing is reaped, however long ago the lease
// ended.
func TestProfileReapingDisabled(t *testing.T) {
	t.Parallel()
	p := newProfile(t, "lease=4s")
	victim := p.worker("--janitor", "any", "--scan", "0", "--reconcile", "off")
	id := p.enqueue("")
	p.begun(id, 1)
	p.kill(victim)
	bystander := p.worker("--janitor", "any", "--scan", "0", "--reconcile", "off")
	bystander.awaitLog(t, "reaping is off")
	eventually(t, p.pool, true, "select lease_expires_at < clock_timestamp() - interval '1 s' from jobq.job where id = $1", id)
	// A pass that has promoted this one would have reaped the other.
	later := p.enqueue(", run_at => clock_timestamp() + interval '100 ms'")
	p.begun(later, 1)
	p.completed(later, 1)
	require.Equal(t, "running", query[string](t, p.pool, "select state::text from jobq.job where id = $1", id))
}

// (b) Nobody reaps; the restarted worker recovers its predecessor's jobs before
// it claims any, at once and not when the lease ends.
func TestProfileRestartSweep(t *testing.T) {
	t.Parallel()
	p := newProfile(t, "lease=1h")
	victim := p.worker("--janitor", "off", "-q", "default=2")
	first, second, third := p.enqueue(""), p.enqueue(""), p.enqueue(", priority => 1")
	p.begun(first, 1)
	p.begun(second, 1)
	killed := p.kill(victim)
	restarted := p.worker("--janitor", "off", "-q", "default=2")
	reason, _ := p.recovered(first, killed)
	require.Equal(t, "orphaned by worker restart", reason)
	p.recovered(second, killed)
	require.Contains(t, restarted.log.String(), `level=WARN msg="recovered 2 orphaned jobs"`)
	require.Equal(t, 2, query[int](t, p.pool, "select count(*) from jobq.job where attempts = 1 and last_error = 'orphaned by worker restart'"))
	p.completed(first, 2)
	p.completed(second, 2)
	p.completed(third, 1)
	// A job that is lost at every restart ends as failed.
	poison := p.enqueue(", max_attempts => 1")
	p.begun(poison, 1)
	p.kill(restarted)
	p.worker("--janitor", "off")
	eventually(t, p.pool, "failed", "select state::text from jobq.job where id = $1 and crashes = 1", poison)
}

// (c) Progress is the heartbeat: a job that reports keeps its lease, one that
// hangs loses it with its worker alive; the next run begins afresh and knows why.
func TestProfileProgress(t *testing.T) {
	t.Parallel()
	p := newProfile(t, "lease=8s", "heartbeat=progress", "reset_on_reap=yes")
	script := fmt.Sprintf(`steps=sh -c 'echo "$JOBQ_CHECKPOINT:$JOBQ_CLEAR_REASON" > %[1]s/$JOBQ_JOB_ID.begun.$JOBQ_ATTEMPT; `+
		`echo "{\"checkpoint\": {\"at\": 1}}" >&3; until [ -e %[1]s/hang ]; do sleep 0.1; echo "{\"progress\": 50}" >&3; done; `+
		`[ $JOBQ_ATTEMPT -ge 2 ] || exec sleep 1000'`, p.folder)
	w := p.worker("--scan", "500ms", "--run", script)
	id := query[int64](t, p.pool, "select jobq.enqueue('steps')")
	p.begun(id, 1)
	started := query[time.Time](t, p.pool, "select started_at from jobq.job where id = $1", id)
	eventually(t, p.pool, true, "select lease_expires_at > started_at + interval '12 s' from jobq.job where id = $1", id) // progress has kept it
	require.NoError(t, os.WriteFile(p.folder+"/hang", nil, 0o600))
	reason, _ := p.recovered(id, started)
	require.Equal(t, fmt.Sprintf(":lease expired: worker %s stopped responding", p.owner(id)), reason, "no checkpoint, and the reason")
	eventually(t, p.pool, "completed", "select state::text from jobq.job where id = $1", id)
	require.Contains(t, w.log.String(), "lease lost", "the worker has stopped the run that hung")
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	require.NoError(t, w.Wait())
}

// (d) Several janitors, one of which leads; the lease is not extended. When the
// leader dies with a worker, another takes over and the job is recovered.
func TestProfileLeaders(t *testing.T) {
	t.Parallel()
	p := newProfile(t, "lease=5s", "heartbeat=off")
	timings := []string{"--leader-ttl", "3s", "--leader-renew", "1s", "--leader-retry", "500ms"}
	janitor := func() *process {
		return startProcess(t, append([]string{"janitor", "--database-url", p.url}, timings...)...)
	}
	leader := janitor()
	leader.awaitLog(t, "leadership acquired")
	follower := janitor()
	victim := p.worker("--janitor", "off", "--reconcile", "off")
	id := p.enqueue("")
	p.begun(id, 1)
	p.kill(leader)
	killed := p.kill(victim)
	p.worker("--janitor", "off", "--reconcile", "off")
	p.recovered(id, killed)
	p.completed(id, 2)
	follower.awaitLog(t, "leadership acquired")
	require.NoError(t, follower.Process.Signal(syscall.SIGTERM))
	require.NoError(t, follower.Wait())
	stdout, _, code := invoke(t, "", "janitor", "events", "--json", "--database-url", p.url)
	require.Zero(t, code)
	for _, event := range []string{"leadership_acquired", "leadership_released", `"type": "stalled"`} {
		require.Contains(t, stdout, event)
	}
}

// (e) The program of a lost lease is killed with all that it started, at once
// and with its worker alive, and its attempt is counted once; the job comes
// back at the head of the line, or at its tail.
func TestProfileKilledOnLoss(t *testing.T) {
	t.Parallel()
	for redelivery, want := range map[string][]int{"head": {1, 2}, "tail": {2, 1}} {
		t.Run(redelivery, func(t *testing.T) {
			t.Parallel()
			p := newProfile(t, "lease=5m", "extend_every=1s", "redelivery="+redelivery)
			w := p.worker("-q", "default=1", "--scan", "200ms")
			first, second := p.enqueue(""), p.enqueue("")
			p.begun(first, 1)
			p.end(second, 1)
			_, _, code := invoke(t, "", "queues", "pause", "default", "--database-url", p.url)
			require.Zero(t, code)
			lost := pgtest.Columns{"lease_expires_at": "now() - interval '1 s'", "lease_owner": "'elsewhere'"}
			require.NoError(t, pgtest.UpdateRunning(context.Background(), p.pool, lost, "id = $1", first))
			w.awaitLog(t, "lease lost")
			eventually(t, p.pool, 1, "select attempts from jobq.job where id = $1 and state = 'available'", first)
			p.end(first, 2)
			// Another worker, which begins at the head of the line. This one may pass by what has come
			// back to an old place until its next look back.
			require.NoError(t, w.Process.Signal(syscall.SIGTERM))
			require.NoError(t, w.Wait())
			p.worker("-q", "default=1")
			_, _, code = invoke(t, "", "queues", "resume", "default", "--database-url", p.url)
			require.Zero(t, code)
			eventually(t, p.pool, 2, "select count(*) from jobq.job where state = 'completed'")
			order := []int{}
			for _, id := range query[[]int64](t, p.pool, "select array_agg(id order by finished_at) from jobq.job") {
				order = append(order, int(id))
			}
			require.Equal(t, want, order)
			require.Zero(t, query[int](t, p.pool, "select crashes from jobq.job where id = $1", second))
		})
	}
}
