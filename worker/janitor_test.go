package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/janitor"
	"github.com/jobq-dev/jobq/worker"
)

// Run runs a janitor that nobody has asked for: retries and scheduled jobs
// run. Several workers have one each, and the janitor ends with its worker.
func TestRunRunsAJanitor(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	handler := func(_ context.Context, job *worker.Job[task]) error {
		if job.Args.N == 2 && job.Attempt() == 1 {
			return worker.Retry(10*time.Millisecond, errors.New("not yet"))
		}
		return nil
	}
	workers := make([]*worker.Worker, 2)
	for i := range workers {
		w, err := worker.New(client, &worker.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, handler, nil))
		workers[i] = w
		run(t, w)
	}
	retried := enqueue(t, client, 2, nil)
	scheduled := enqueue(t, client, 3, &jobq.EnqueueOptions{RunAt: time.Now().Add(100 * time.Millisecond)})
	for _, id := range []int64{retried, scheduled} {
		awaitState(t, client, id, jobq.StateCompleted)
	}
	require.Eventually(t, func() bool { return workers[0].Janitor().Leading() != workers[1].Janitor().Leading() }, patience, time.Millisecond)
	require.Equal(t, 1, number(t, client, "select count(*)::integer from jobq.janitor_seen where seen_at > now() - interval '1 minute'"))
}

// A worker that is told not to run a janitor warns, once, when it hears of none, and says when there is one. The
// warning comes within 30 s: two looks, one every 10 s; here looks are quicker.
func TestNoJanitorIsNotSilent(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	log := &synced{writer: new(bytes.Buffer)}
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	require.NoError(t, err)
	require.Nil(t, w.Janitor())
	worker.LookForJanitorEvery(w, time.Millisecond)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	r := run(t, w)
	says := func(text string, times int) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Count(log.String(), text) == times }, patience, time.Millisecond, text)
	}
	says(`level=WARN msg="no janitor runs`, 1)
	j, err := janitor.New(client, &janitor.Config{Mode: janitor.ModeAny, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- j.Run(ctx) }()
	says(`level=INFO msg="a janitor runs"`, 1)
	cancel()
	require.NoError(t, <-ended)
	exec(t, client.Pool(), "update jobq.janitor_seen set seen_at = now() - interval '26 seconds'") // as if that were long ago
	says(`level=WARN msg="no janitor runs`, 2)
	exec(t, client.Pool(), "update jobq.janitor_seen set seen_at = now() + interval '1 hour'") // by a clock that was wrong
	says(`level=INFO msg="a janitor runs"`, 1)
	require.NoError(t, r.drain())
}
