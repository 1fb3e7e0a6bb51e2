package worker_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
)

// heard gathers digests.
type heard struct {
	mu      sync.Mutex
	digests []*monitor.Digest
}

// watchFor watches until the function returned is called.
func (h *heard) watchFor(t *testing.T, client *jobq.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done, connected := make(chan struct{}), make(chan struct{}, 10)
	go func() {
		defer close(done)
		_ = monitor.New(client).Watch(ctx, monitor.WatchConfig{
			Logger: slog.New(slog.DiscardHandler), OnConnect: func() { connected <- struct{}{} },
			OnDigest: func(digest *monitor.Digest) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.digests = append(h.digests, digest)
			},
		})
	}()
	receive(t, connected, "a connection")
	return func() {
		cancel()
		<-done
	}
}

// isTold says whether any digest has come.
func (h *heard) isTold() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.digests) > 0
}

// event is the last that was heard of the job.
func (h *heard) event(id int64) (event monitor.DigestEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, digest := range h.digests {
		for _, e := range digest.Events {
			if e.ID == id {
				event = e
			}
		}
	}
	return event
}

// Workers say nothing while nobody watches; then they tell how runs began,
// went on and ended, numbered without gaps, and fall silent again.
func TestDigests(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	conn, err := pgx.ConnectConfig(ctx, client.Pool().Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(ctx) })
	_, err = conn.Exec(ctx, "listen "+db.Channel(client.Schema(), db.TopicEvent))
	require.NoError(t, err)

	release := make(chan struct{})
	start(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}}, func(ctx context.Context, job *worker.Job[task]) error {
		switch job.Args.N {
		case 1:
			return errors.New("no luck")
		case 2:
			job.Progress(63, "encode", "")
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	})
	unwatched := enqueue(t, client, 0, nil)
	awaitState(t, client, unwatched, jobq.StateCompleted)

	var h heard
	stop := h.watchFor(t, client)
	require.Eventually(t, func() bool { // until the worker has heard that somebody watches
		id := enqueue(t, client, 0, nil)
		awaitState(t, client, id, jobq.StateCompleted)
		waitCtx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		_, err := conn.WaitForNotification(waitCtx)
		return err == nil
	}, patience, time.Millisecond)
	require.Zero(t, h.event(unwatched).ID, "nothing was said of what happened before")

	failing, long := enqueue(t, client, 1, &jobq.EnqueueOptions{MaxAttempts: 1}), enqueue(t, client, 2, nil)
	require.Eventually(t, func() bool {
		return h.event(failing).State == "failed" && h.event(long).Stage == "encode" && h.event(long).Percent == 63
	}, patience, time.Millisecond)
	require.Equal(t, 1, h.event(failing).Attempts)
	require.Equal(t, "running", h.event(long).State)
	close(release)
	require.Eventually(t, func() bool { return h.event(long).State == "completed" }, patience, time.Millisecond)
	h.mu.Lock()
	for i, digest := range h.digests[1:] {
		require.Equal(t, h.digests[i].Sequence+1, digest.Sequence)
	}
	h.mu.Unlock()

	stop()
	var watchers int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from jobq.watcher").Scan(&watchers))
	require.Zero(t, watchers, "who leaves gives up the lease")
}

// A job of a rare kind is named although its queue is flooded by another kind.
func TestDigestsNameRareKinds(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	for _, kind := range []string{"flood", "rare"} {
		require.NoError(t, worker.HandleRaw(w, kind, func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	}
	var h heard
	t.Cleanup(h.watchFor(t, client))
	run(t, w)
	require.Eventually(t, func() bool { // until the worker has heard that somebody watches
		awaitState(t, client, enqueueRaw(t, client, "rare", "{}", nil), jobq.StateCompleted)
		return h.isTold()
	}, patience, time.Millisecond)
	exec(t, client.Pool(), "select jobq.enqueue(case when i < 2000 then 'flood' else 'rare' end) from generate_series(1, 2000) i")
	var rare int64
	require.NoError(t, client.Pool().QueryRow(context.Background(), "select max(id) from jobq.job where kind = 'rare'").Scan(&rare))
	require.Eventually(t, func() bool { return h.event(rare).State == "completed" }, patience, time.Millisecond)
}
