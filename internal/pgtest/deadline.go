package pgtest

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Deadlines is a tracer that keeps the statements which were sent without a
// deadline: such a call may wait for ever. The zero value is ready to use.
type Deadlines struct {
	mu      sync.Mutex
	without []string
	sent    int
}

// Without are the statements sent without a deadline, and how many were sent in all.
func (d *Deadlines) Without() (statements []string, sent int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.without, d.sent
}

func (d *Deadlines) note(ctx context.Context, sql string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent++
	if _, bounded := ctx.Deadline(); !bounded {
		d.without = append(d.without, sql)
	}
}

// TraceQueryStart implements pgx.QueryTracer.
func (d *Deadlines) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	d.note(ctx, data.SQL)
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (d *Deadlines) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart implements pgx.BatchTracer.
func (d *Deadlines) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, query := range data.Batch.QueuedQueries {
		d.note(ctx, query.SQL)
	}
	return ctx
}

// TraceBatchQuery implements pgx.BatchTracer.
func (d *Deadlines) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd implements pgx.BatchTracer.
func (d *Deadlines) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}
