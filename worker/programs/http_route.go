package programs

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// presumeAfter: see presume.
const presumeAfter = 5 * time.Second

// resetsMax bounds the jobs that are known to have been cut off.
const resetsMax = 1000

// route is what is known of a request's way to its server. net/http may try
// again by itself, on another connection, when nothing was sent on the first. A transport
// of the caller's may tell nothing of it (tells is false).
type route struct {
	tells, dialled, connected, answered atomic.Bool
	conn                                atomic.Pointer[watchedConn]
}

// trace returns a trace that fills in the route, and calls reached at the first byte of an
// answer. A connection alone says nothing: a server that is being stopped, or a proxy without
// one behind it, accepts connections and resets them.
func (w *route) trace(reached func()) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.tells.Store(true)
			w.connected.Store(false)
		},
		DNSStart:     func(httptrace.DNSStartInfo) { w.dialled.Store(true) },
		ConnectStart: func(string, string) { w.dialled.Store(true) },
		GotConn: func(got httptrace.GotConnInfo) {
			w.connected.Store(true)
			w.conn.Store(watchedIn(got.Conn))
		},
		GotFirstResponseByte: func() {
			w.answered.Store(true)
			reached()
		},
	}
}

// presume counts the sole try of a kind as successful if, after presumeAfter, it has neither
// failed nor reported a connection. Otherwise the kind's other jobs would wait for its end: a
// transport of the caller's may report nothing before the answer, and with MaxConnsPerHost
// the request may wait for the connection of another job, or the job may run for an hour. A try
// that has begun to dial and has no connection is looked at again later, because a host that does
// not answer at all takes half a minute to fail. The caller must call the function returned at the end.
func (w *route) presume(try *breaker.Try) (stop func()) {
	if !try.IsSole() {
		return func() {}
	}
	ended := make(chan struct{})
	go func() {
		look := time.NewTicker(presumeAfter)
		defer look.Stop()
		for {
			select {
			case <-ended:
				return
			case <-look.C:
			}
			if !w.dialled.Load() || w.connected.Load() {
				try.Reached()
				return
			}
		}
	}()
	return func() { close(ended) }
}

// isUnread says that the server has closed the connection without having read the whole
// request: that is what a reset means, where the end of the connection alone means that it
// has read it. A server that stops does so with connections that it has not accepted yet, and
// with those that it has kept.
func (w *route) isUnread(err error) bool {
	if !w.tells.Load() || w.answered.Load() {
		return false
	}
	conn := w.conn.Load()
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || conn != nil && conn.isUnread()
}

// resets are the jobs whose last request was reset before it was read. Once that is no attempt.
// Again it is: the job itself may be what makes the server break.
type resets struct {
	mu sync.Mutex
	// guarded by mu
	jobs map[int64]struct{}
}

// add says whether it is the first reset of the job.
func (r *resets) add(id int64) (isFirst bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.jobs[id]; known {
		delete(r.jobs, id)
		return false
	}
	if r.jobs == nil || len(r.jobs) >= resetsMax { // each of them may be reset once more
		r.jobs = make(map[int64]struct{})
	}
	r.jobs[id] = struct{}{}
	return true
}

func (r *resets) remove(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.jobs, id)
}

// isUnreachable says that the request was surely never sent: there was no
// connection for it, be it for want of an address, a listener, or a certificate.
func (w *route) isUnreachable(err error) bool {
	if w.tells.Load() {
		return !w.connected.Load()
	}
	var op *net.OpError // of a transport that does not tell
	return errors.As(err, &op) && op.Op == "dial"
}

// noAnswer is what the handler returns when there is no answer. A request that was surely never
// received has not failed; neither has one whose job ran out of time before there was a connection.
func noAnswer(ctx context.Context, try *breaker.Try, err error, unreachable bool) error {
	switch cause := context.Cause(ctx); {
	case unreachable && (cause == nil || errors.Is(cause, worker.ErrTimedOut)):
		return try.Failed(err)
	case !unreachable:
		try.Reached()
	}
	return stopError(ctx, err)
}

// stopError is why the request was closed, or else what went wrong with it.
func stopError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
