package programs

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs/internal/breaker"
)

// presumeAfter: see presume.
const presumeAfter = 5 * time.Second

// route is what is known of a request's way to its server. net/http may try
// again by itself, on another connection, when nothing was sent on the first. A transport
// of the caller's may tell nothing of it (tells is false).
type route struct{ tells, dialled, connected atomic.Bool }

// trace returns a trace that fills in the route, and calls reached whenever there is a
// connection.
func (w *route) trace(reached func()) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.tells.Store(true)
			w.connected.Store(false)
		},
		DNSStart:     func(httptrace.DNSStartInfo) { w.dialled.Store(true) },
		ConnectStart: func(string, string) { w.dialled.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			w.connected.Store(true)
			reached()
		},
	}
}

// presume counts the sole try of a kind as successful if, after presumeAfter, it has neither
// failed nor reported a connection. Otherwise the kind's other jobs would wait for its end: a
// transport of the caller's may report nothing before the answer, and with MaxConnsPerHost
// the request may wait for the connection of another job. A try that has begun to dial is
// not counted, because a host that does not answer at all takes half a minute to fail. The
// caller must call the function returned at the end.
func (w *route) presume(try *breaker.Try) (stop func() bool) {
	if !try.IsSole() {
		return func() bool { return false }
	}
	return time.AfterFunc(presumeAfter, func() {
		if !w.dialled.Load() {
			try.Reached()
		}
	}).Stop
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

// noAnswer is what the handler returns when there is no answer. A request that
// was surely never sent has not failed; neither has one whose job ran out of time
// before there was a connection.
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
