package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// tracer counts the statements that go to the server, and adds up how long
// their answers take: exact where the server's own counters include others.
type tracer struct{ statements, roundTrips, waited atomic.Int64 }

// traced is the count so far.
type traced struct {
	statements, roundTrips int64
	waited                 time.Duration
}

func (t *tracer) read() traced {
	return traced{t.statements.Load(), t.roundTrips.Load(), time.Duration(t.waited.Load())}
}

func (t traced) since(before traced) traced {
	return traced{t.statements - before.statements, t.roundTrips - before.roundTrips, t.waited - before.waited}
}

// sentAt is the key of a context's time of departure.
type sentAt struct{}

func (t *tracer) start(ctx context.Context) context.Context {
	t.roundTrips.Add(1)
	return context.WithValue(ctx, sentAt{}, time.Now())
}

func (t *tracer) end(ctx context.Context) {
	if sent, ok := ctx.Value(sentAt{}).(time.Time); ok {
		t.waited.Add(int64(time.Since(sent)))
	}
}

// TraceQueryStart begins a statement of its own.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.statements.Add(1)
	return t.start(ctx)
}

// TraceQueryEnd ends it.
func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { t.end(ctx) }

// TraceBatchStart begins a batch: one round trip.
func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return t.start(ctx)
}

// TraceBatchQuery is a statement of a batch.
func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	t.statements.Add(1)
}

// TraceBatchEnd ends the batch.
func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { t.end(ctx) }
