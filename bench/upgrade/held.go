package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// heldKind is that of the jobs that run during the whole trial, in a queue of the same name.
const heldKind = "held"

// held is the handler of jobs that run during the whole trial: a server that answers no job before it is released.
type held struct {
	server   *http.Server
	url      string
	posted   atomic.Int64 // jobs that the server was ever sent
	released chan struct{}
}

// newHeld starts the server, on a port of its own.
func newHeld(ctx context.Context) (*held, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	h := &held{url: "http://" + listener.Addr().String(), released: make(chan struct{})}
	h.server = &http.Server{Handler: h, ReadHeaderTimeout: patience}
	go func() { _ = h.server.Serve(listener) }() // until close
	return h, nil
}

// ServeHTTP is what the worker calls for each job. Without a body, status 200 completes it.
func (h *held) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	h.posted.Add(1)
	select {
	case <-h.released:
	case <-r.Context().Done(): // the worker has stopped the job, or is gone
	}
}

func (h *held) close() { _ = h.server.Close() }

// hold lets a worker of the old program run jobs that do not end, and returns when all of them run.
func (t *trial) hold(ctx context.Context) error {
	if t.running == 0 {
		return nil
	}
	const add = "insert into jobq.pending (kind, queue) select $1, $1 from generate_series(1, $2::integer)"
	if _, err := t.pool.Exec(ctx, add, heldKind, t.running); err != nil {
		return err
	}
	_, err := t.start(ctx, t.old, "holder", "worker", "--queue", fmt.Sprintf("%s=%d", heldKind, t.running), "--run-http", heldKind+"="+t.held.url)
	if err != nil {
		return err
	}
	return within(ctx, "the jobs that run during the trial", func() (bool, error) {
		return t.held.posted.Load() == int64(t.running), t.alive()
	})
}

// release lets them end, and says what has gone wrong with them.
func (t *trial) release(ctx context.Context) error {
	close(t.held.released)
	var completed, again int
	err := within(ctx, "the end of the jobs that ran during the trial", func() (bool, error) {
		const count = "select count(*) filter (where state = 'completed'), count(*) filter (where attempts + crashes > 0) from jobq.job where kind = $1"
		err := t.pool.QueryRow(ctx, count, heldKind).Scan(&completed, &again)
		return completed == t.running, err
	})
	if err != nil {
		return fmt.Errorf("%d of %d have completed: %w", completed, t.running, err)
	}
	if posted := t.held.posted.Load(); again > 0 || posted != int64(t.running) {
		return fmt.Errorf("%d jobs that ran during the trial were begun %d times, and %d of them ended before", t.running, posted, again)
	}
	fmt.Printf("%d jobs ran during the whole trial, %.0f s, each once\n", t.running, time.Since(t.windows[0].began).Seconds())
	return nil
}
