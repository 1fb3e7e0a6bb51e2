package bench

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// usedShare is the part of the time for which so many round trips have to be
// under way that so many connections count as used: heartbeats and the like
// are no more than moments.
const usedShare = 0.05

// tracer counts the statements that go to the server, and how long how many
// round trips are under way: exact where the server's own counters include
// others.
type tracer struct {
	mu sync.Mutex
	// guarded by mu
	sofar    traced
	underWay int // round trips
	since    time.Time
}

// traced is the count so far.
type traced struct {
	statements, roundTrips int64
	// at is for how long there were so many round trips under way: at[0] none,
	// at[1] one, and so on.
	at []time.Duration
}

func newTracer() *tracer { return &tracer{since: time.Now()} }

func (t *tracer) read() traced {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passTo(time.Now(), 0)
	now := t.sofar
	now.at = slices.Clone(now.at)
	return now
}

func (t traced) since(before traced) traced {
	t.statements -= before.statements
	t.roundTrips -= before.roundTrips
	t.at = slices.Clone(t.at)
	for i, duration := range before.at {
		t.at[i] -= duration
	}
	return t
}

// waited is how long answers have taken, all added up.
func (t traced) waited() time.Duration {
	sum := time.Duration(0)
	for underWay, duration := range t.at {
		sum += time.Duration(underWay) * duration
	}
	return sum
}

// connections is how many were used at once, for usedShare of the time at
// least; 1 when that was less for all.
func (t traced) connections() int {
	all, more := time.Duration(0), time.Duration(0)
	for _, duration := range t.at {
		all += duration
	}
	for underWay := len(t.at) - 1; underWay > 1; underWay-- {
		if more += t.at[underWay]; more.Seconds() >= usedShare*all.Seconds() && more > 0 {
			return underWay
		}
	}
	return 1
}

// passTo adds the time that has passed, and changes the number of round trips
// under way. The caller holds mu.
func (t *tracer) passTo(now time.Time, change int) {
	for len(t.sofar.at) <= t.underWay {
		t.sofar.at = append(t.sofar.at, 0)
	}
	t.sofar.at[t.underWay] += now.Sub(t.since)
	t.since = now
	t.underWay += change
}

// answered is the key of a context's note whether its round trip has ended,
// which pgx may say twice of one that fails.
type answered struct{}

// start begins a round trip, with a number of statements that are known.
func (t *tracer) start(ctx context.Context, statements int64) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sofar.statements += statements
	t.sofar.roundTrips++
	t.passTo(time.Now(), 1)
	return context.WithValue(ctx, answered{}, &atomic.Bool{})
}

func (t *tracer) end(ctx context.Context) {
	note, ok := ctx.Value(answered{}).(*atomic.Bool)
	if !ok || note.Swap(true) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passTo(time.Now(), -1)
}

// TraceQueryStart begins a statement of its own.
func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return t.start(ctx, 1)
}

// TraceQueryEnd ends it.
func (t *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) { t.end(ctx) }

// TraceBatchStart begins a batch: one round trip.
func (t *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return t.start(ctx, int64(data.Batch.Len()))
}

// TraceBatchQuery is a statement of a batch, which was counted with it.
func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends the batch.
func (t *tracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) { t.end(ctx) }
