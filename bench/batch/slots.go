package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/postgres"
)

// walOf runs a statement, and says how many bytes of WAL it has written itself:
// what others write at the same time is not in it.
func walOf(ctx context.Context, conn *pgx.Conn, sql string, args []any) (bytes int64, err error) {
	var plan []struct {
		Plan struct {
			Bytes int64 `json:"WAL Bytes"`
		}
	}
	if err := conn.QueryRow(ctx, "explain (analyze, wal, timing off, format json) "+sql, args...).Scan(&plan); err != nil {
		return 0, err
	}
	return plan[0].Plan.Bytes, nil
}

// runSlots measures what it costs that the jobs of one claim end a few at a
// time: each time, the lease's whole array of ends is written again.
func runSlots(ctx context.Context, server *postgres.Server, rounds int) error {
	fmt.Fprintln(os.Stdout, "| slots of the lease | end at a time | server µs/job, least | WAL B/job |\n|---:|---:|---:|---:|")
	for number, of := range []struct{ slots, atOnce int }{
		{1, 1}, {10, 1}, {100, 1}, {100, 10}, {100, 100}, {500, 1}, {500, 10}, {500, 500}, {1000, 1}, {1000, 10}, {1000, 100}, {1000, 1000},
	} {
		p := standard(second())
		p.jobs, p.batch, p.connections = max(of.slots, 200), of.slots, 1
		b, err := makeBed(ctx, server.URL("postgres"), p, number)
		if err != nil {
			return err
		}
		defer b.close(ctx)
		if err := b.slots(ctx, os.Stdout, of.atOnce, rounds); err != nil {
			return err
		}
	}
	return runExtensions(ctx, server, rounds)
}

// runExtensions measures what the heartbeat of 1,000 running jobs costs: today,
// claimed together, and claimed one by one.
func runExtensions(ctx context.Context, server *postgres.Server, rounds int) error {
	each := second()
	each.claim = runClaimEach
	fmt.Fprintln(os.Stdout, "\n| heartbeat of 1,000 jobs | server µs, least | WAL B |\n|---|---:|---:|")
	for number, of := range []struct {
		name string
		path
	}{{"today", today()}, {"second layout, one lease", second()}, {"second layout, 1,000 leases", each}} {
		p := standard(of.path)
		p.jobs, p.batch, p.connections = 1000, 1000, 1
		b, err := makeBed(ctx, server.URL("postgres"), p, 100+number)
		if err != nil {
			return err
		}
		defer b.close(ctx)
		if err := b.add(ctx); err != nil {
			return err
		}
		extend, err := b.claimAndExtend(ctx)
		if err != nil {
			return err
		}
		var least, leastWAL float64
		for round := range rounds * 10 {
			_, micros, wal, err := b.cost(ctx, extend)
			if err != nil {
				return err
			}
			if round == 0 || micros < least {
				least = micros
			}
			if round == 0 || wal < leastWAL {
				leastWAL = wal
			}
		}
		fmt.Fprintf(os.Stdout, "| %s | %.0f | %.0f |\n", of.name, least*float64(b.jobs), leastWAL*float64(b.jobs))
	}
	return nil
}

// claimAndExtend claims all jobs, and returns what extends their leases once.
func (b *bed) claimAndExtend(ctx context.Context) (func() error, error) {
	w, extend := b.worker(0), &pgx.Batch{}
	extend.Queue(db.HotSettings)
	minute := db.Interval(time.Minute)
	if b.second {
		got, err := w.exchangeSecond(ctx, work{}, claimed{})
		if err != nil {
			return nil, err
		}
		var ids []int64
		for _, l := range leasesOf(got) {
			ids = append(ids, l.id)
		}
		extend.Queue(b.schema.SQL(leaseExtend), ids, w.owner, minute)
	} else {
		got, err := w.exchange(ctx, work{}, claimed{})
		if err != nil {
			return nil, err
		}
		b.schema.Queue(extend, func(q *db.Queries) {
			_, _ = q.LeaseExtend(ctx, db.LeaseExtendParams{Ids: got.ids, Tokens: got.tokens, Owner: w.owner, Lease: minute})
		})
	}
	return func() error { return w.conn.SendBatch(ctx, extend).Close() }, nil
}

// slots drains some jobs, so many of a lease at a time, and prints what the ends cost.
func (b *bed) slots(ctx context.Context, out io.Writer, atOnce, rounds int) error {
	least, leastWAL := 0.0, 0.0
	for round := range rounds {
		if err := b.clear(ctx); err != nil {
			return err
		}
		if err := b.add(ctx); err != nil {
			return err
		}
		w, leases := b.worker(0), []*lease(nil)
		for {
			got, err := w.exchangeSecond(ctx, work{}, claimed{})
			if err != nil {
				return err
			}
			if len(got.ids) == 0 {
				break
			}
			leases = append(leases, leasesOf(got)...)
		}
		before, err := layouts.CPUTime(b.conns)
		if err != nil {
			return err
		}
		walBefore, err := layouts.WALPosition(ctx, b.conns[0])
		if err != nil {
			return err
		}
		for _, l := range leases {
			if err := w.endInSteps(ctx, l, atOnce); err != nil {
				return err
			}
		}
		after, err := layouts.CPUTime(b.conns)
		if err != nil {
			return err
		}
		walAfter, err := layouts.WALPosition(ctx, b.conns[0])
		if err != nil {
			return err
		}
		micros, wal := float64((after-before)/time.Nanosecond)/1000/float64(b.jobs), (walAfter-walBefore)/float64(b.jobs)
		if round == 0 || micros < least {
			least = micros
		}
		if round == 0 || wal < leastWAL {
			leastWAL = wal
		}
	}
	fmt.Fprintf(out, "| %d | %d | %.1f | %.0f |\n", b.batch, atOnce, least, leastWAL)
	return nil
}

// endInSteps ends the jobs of a lease, so many in each statement and commit.
func (w *worker) endInSteps(ctx context.Context, l *lease, atOnce int) error {
	for slot := 1; slot <= len(l.ended); slot += atOnce {
		for i := slot; i < min(slot+atOnce, len(l.ended)+1); i++ {
			l.succeed(i)
		}
		batch := &pgx.Batch{}
		batch.Queue(w.settings)
		w.leases = []*lease{l}
		wanted := w.queueEnds(batch, work{}, claimed{})
		if err := w.conn.SendBatch(ctx, batch).Close(); err != nil {
			return err
		}
		if *wanted != 0 {
			return fmt.Errorf("the end of %d slots was not stored", atOnce)
		}
	}
	return nil
}
