package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/identity"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// logBuffer is a log that tests read while it is written.
type logBuffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.content.String()
}

// host is a database on which workers of this host have left rows.
type host struct {
	*testing.T
	client *jobq.Client
	self   identity.Process
	ended  int // a pid that no process has
}

func newHost(t *testing.T) *host {
	t.Helper()
	self, err := identity.Self()
	require.NoError(t, err)
	if self.BootID == "" {
		t.Skip("needs /proc")
	}
	ended := osexec.Command("/bin/true")
	require.NoError(t, ended.Run())
	return &host{T: t, client: newClient(t), self: self, ended: ended.Process.Pid}
}

// worker leaves a row of a worker process, and a running job that it owns.
func (h *host) worker(id string, process identity.Process, present bool, beat time.Duration) {
	h.Helper()
	pool := h.client.Pool()
	exec(h.T, pool, `insert into jobq.worker (id, pid, process_start, present, hostname, boot_id, pid_namespace, version, queues, kinds, heartbeat_at)
		values ($1, $2, $3, $4, $5, $6, $7, '', '{}', '{}', now() - $8::interval)`,
		id, process.PID, process.Start, present, process.Hostname, process.BootID, process.Namespace, beat)
	err := pgtest.InsertRunning(context.Background(), pool, 1, pgtest.Columns{"kind": "'old'", "lease_owner": "'" + id + "'"})
	require.NoError(h, err)
}

// dead is a process of this host that has ended.
func (h *host) dead() identity.Process {
	process := h.self
	process.PID, process.Start = h.ended, 1
	return process
}

// hold takes the presence lock of a worker until the test ends.
func (h *host) hold(id string) {
	h.Helper()
	schema, err := db.NewSchema(h.client.Schema())
	require.NoError(h, err)
	conn, err := h.client.Pool().Acquire(context.Background())
	require.NoError(h, err)
	h.Cleanup(conn.Release)
	class, object := schema.PresenceKey(id)
	taken, err := schema.Queries(conn).PresenceTake(context.Background(), class, object)
	require.NoError(h, err)
	require.True(h, taken)
}

// startOnce runs a worker that has nothing to do until it has started, and
// returns its log.
func (h *host) startOnce(mode worker.Reconcile) string {
	h.Helper()
	var log logBuffer
	w, err := worker.New(h.client, &worker.Config{
		NoJanitor: true,
		Reconcile: mode, PollOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(h, err)
	require.NoError(h, worker.HandleRaw(w, "nothing", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	require.Eventually(h, func() bool { return bytes.Contains([]byte(log.String()), []byte("worker started")) }, patience, time.Millisecond)
	cancel()
	require.NoError(h, <-ended)
	return log.String()
}

// owners are those that still own a running job.
func (h *host) owners() (owners []string) {
	h.Helper()
	require.NoError(h, h.client.Pool().QueryRow(context.Background(),
		"select coalesce(array_agg(lease_owner order by lease_owner), '{}') from jobq.job where state = 'running'").Scan(&owners))
	return owners
}

// Only jobs whose worker is proven dead are recovered at the start, at once and
// counted; everybody else's are left alone, whatever they are called.
func TestReconcileHost(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	changed := func(change func(*identity.Process)) identity.Process {
		process := h.dead()
		change(&process)
		return process
	}
	h.worker("dead", h.dead(), true, 0)
	h.worker("pid used again", changed(func(p *identity.Process) { p.PID = os.Getpid() }), false, 0)
	h.worker("before the boot", changed(func(p *identity.Process) { p.BootID = "earlier" }), true, time.Minute)
	h.worker("live sibling", h.self, true, 0)
	h.worker("longer hostname", changed(func(p *identity.Process) { p.Hostname += "-2" }), true, 0)
	h.worker("shorter hostname", changed(func(p *identity.Process) { p.Hostname = p.Hostname[:1] }), true, 0)
	h.worker("pattern hostname", changed(func(p *identity.Process) { p.Hostname = "%" }), true, 0)
	h.worker("other namespace", changed(func(p *identity.Process) { p.Namespace = "pid:[1]" }), true, 0)
	h.worker("other boot, no lock", changed(func(p *identity.Process) { p.BootID = "earlier" }), false, time.Minute)
	h.worker("other boot, heard of", changed(func(p *identity.Process) { p.BootID = "earlier" }), true, 0) // the server has forgotten its lock
	h.worker("other boot, connected", changed(func(p *identity.Process) { p.BootID = "earlier" }), true, time.Minute)
	h.hold("other boot, connected")
	h.worker("dead, connected", h.dead(), true, 0) // its session has not ended
	h.hold("dead, connected")

	log := h.startOnce("")
	require.Contains(t, log, `level=WARN msg="recovered 3 orphaned jobs"`)
	require.Equal(t, []string{
		"dead, connected", "live sibling", "longer hostname", "other boot, connected", "other boot, heard of", "other boot, no lock", "other namespace",
		"pattern hostname", "shorter hostname",
	}, h.owners())
	var recovered int
	require.NoError(t, h.client.Pool().QueryRow(context.Background(), `select count(*) from jobq.pending
		where attempts = 1 and crashes = 1 and last_error = 'orphaned by worker restart' and position is not null`).Scan(&recovered))
	require.Equal(t, 3, recovered)
	require.NotContains(t, h.startOnce(""), "recovered", "nothing is left to recover, and nothing is said")
}

// A worker that starts again after each crash counts the crashes that it finds, and
// pauses the kind that they come from.
func TestReconcileQuarantines(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pool := h.client.Pool()
	exec(t, pool, "update jobq.setting set quarantine_crashes = 2")
	h.worker("first", h.dead(), true, 0)
	require.NotContains(t, h.startOnce(""), "quarantined")
	exec(t, pool, "update jobq.kind set crashed_at = crashed_at - interval '10 minutes'")
	h.worker("second", h.dead(), true, 0)
	require.Contains(t, h.startOnce(""), `msg="kind quarantined: its workers crash"`)
	var kind string
	require.NoError(t, pool.QueryRow(context.Background(), "select name from jobq.kind where paused_by = 'jobq'").Scan(&kind))
	require.Equal(t, "old", kind)
}

// A thousand restarts beside a live sibling recover a thousand times the dead
// one's job, and never the sibling's.
func TestReconcileLeavesSiblings(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	sibling := osexec.Command("/bin/sleep", "1000")
	require.NoError(t, sibling.Start())
	defer func() {
		_ = sibling.Process.Kill()
		_ = sibling.Wait()
	}()
	alive, err := identity.Of(sibling.Process.Pid)
	require.NoError(t, err)
	h.worker("web-1-2-7", alive, true, 0)
	h.hold("web-1-2-7")
	recoveries := worker.NewReconciler(t, h.client)
	for trial := range 1000 {
		h.worker("web-1-"+strconv.Itoa(trial)+"-a", h.dead(), true, 0)
		require.Equal(t, 1, recoveries())
		require.Equal(t, []string{"web-1-2-7"}, h.owners())
	}
}

// Off recovers nothing.
func TestReconcileOff(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.worker("dead", h.dead(), true, 0)
	require.NotContains(t, h.startOnce(worker.ReconcileOff), "recovered")
	require.Equal(t, []string{"dead"}, h.owners())
}

// All recovers everybody's jobs, also of owners of whom nothing is known, and
// does not start while another worker may be at work.
func TestReconcileAll(t *testing.T) {
	t.Parallel()
	elsewhere := identity.Process{Hostname: "elsewhere", PID: 7, Start: 7, BootID: "its own"}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		h.worker("dead", h.dead(), true, 0)
		h.worker("long silent", elsewhere, false, time.Hour)
		h.worker("disconnected", elsewhere, true, 0)
		h.worker("unknown", elsewhere, true, 0)
		exec(t, h.client.Pool(), "delete from jobq.worker where id = 'unknown'")
		require.Contains(t, h.startOnce(worker.ReconcileAll), "recovered 4 orphaned jobs")
		require.Empty(t, h.owners())
	})
	for name, leave := range map[string]func(*host){
		"connected":      func(h *host) { h.worker("other", elsewhere, true, time.Hour); h.hold("other") },
		"poll-only":      func(h *host) { h.worker("other", elsewhere, false, 0) },
		"on this host":   func(h *host) { h.worker("other", h.self, true, 0); h.hold("other") },
		"dead and other": func(h *host) { h.worker("dead", h.dead(), true, 0); h.worker("other", elsewhere, false, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHost(t)
			leave(h)
			before := h.owners()
			w, err := worker.New(h.client, &worker.Config{NoJanitor: true, Reconcile: worker.ReconcileAll, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			require.NoError(t, worker.HandleRaw(w, "nothing", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
			require.ErrorContains(t, w.Run(context.Background()), "worker other: another worker is present")
			require.Equal(t, before, h.owners())
		})
	}
}

// A worker that listens is seen to be present, and no more when its session
// has ended.
func TestPresence(t *testing.T) {
	t.Parallel()
	client, err := jobq.NewClient(pgtest.Pool(t), nil)
	require.NoError(t, err)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	w := start(t, client, nil, func(context.Context, *worker.Job[task]) error { return nil })
	class, object := schema.PresenceKey(w.ID())
	free := func() bool {
		free, err := schema.Queries(client.Pool()).PresenceFree(context.Background(), class, object)
		require.NoError(t, err)
		return free
	}
	require.Eventually(t, func() bool { return !free() }, patience, time.Millisecond)
	require.NoError(t, w.drain())
	require.Eventually(t, free, patience, time.Millisecond)
}

// A worker whose presence lock a stranger keeps works all the same, and says who has it.
func TestPresenceLockOfAStranger(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	var log logBuffer
	w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	class, object := schema.PresenceKey(w.ID())
	exec(t, client.Pool(), fmt.Sprintf("do 'begin perform pg_advisory_lock(%d, %d); end'", class, object)) // of a session that stays in the pool
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "has this worker's presence lock") }, patience, time.Millisecond)
	require.Contains(t, log.String(), "holder_pid=")
	require.False(t, worker.IsPresent(w))
	cancel()
	require.NoError(t, <-ended)
	client.Pool().Reset()
}

// A worker that drains is present until its last job has ended: another does
// not take its jobs, and it hears at once that one is cancelled.
func TestPresenceWhileDraining(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	schema, err := db.NewSchema(client.Schema())
	require.NoError(t, err)
	begun, causes := make(chan struct{}, 1), make(chan error, 1)
	w := start(t, client, &worker.Config{Lease: time.Hour}, func(ctx context.Context, _ *worker.Job[task]) error {
		begun <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	id := enqueue(t, client, 1, nil)
	receive(t, begun, "the start")
	class, object := schema.PresenceKey(w.ID())
	require.Eventually(t, func() bool {
		free, err := schema.Queries(client.Pool()).PresenceFree(ctx, class, object)
		return err == nil && !free
	}, patience, time.Millisecond)
	exec(t, client.Pool(), "update jobq.worker set present = true where id = $1", w.ID()) // as the next beat will

	ended := make(chan error, 1)
	go func() { ended <- w.drain() }()
	require.Eventually(t, func() bool { return worker.Draining(w.Worker) }, patience, time.Millisecond)
	second, err := worker.New(client, &worker.Config{NoJanitor: true, Reconcile: worker.ReconcileAll, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(second, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	require.ErrorContains(t, second.Run(bounded), "another worker is present")
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.ErrorIs(t, receive(t, causes, "the cause"), worker.ErrCancelled)
	require.NoError(t, receive(t, ended, "the end of the drain"))
	awaitState(t, client, id, jobq.StateCancelled)
}
