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

// presumeAfter is how long the one try of a kind that is out of reach lasts before
// the server is taken to be there, when the transport does not say.
const presumeAfter = 5 * time.Second

// route is what is known of a request's way to its server. net/http may try
// again by itself, on another connection, when nothing was sent on the first. A transport
// of the caller's may tell nothing of it (tells is false).
type route struct{ tells, dialled, connected atomic.Bool }

// trace tells the route, and calls reached, which may be called several times,
// when there is a connection.
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

// presume makes a try count that has neither failed nor told of a connection for
// presumeAfter, as if it had reached the server, so that the kind's other jobs do
// not wait for its end: a transport of the caller's may tell nothing before the
// answer, and one with MaxConnsPerHost has it wait for another job's connection.
// Not so while it is seen to dial: hosts that do not answer at all take half a
// minute to fail. The function returned is to be called at the end.
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
