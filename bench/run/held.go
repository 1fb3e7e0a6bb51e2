package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/measure"
)

const (
	flowAhead = 20_000
	flowBatch = 2_000
	// freeShare is how long the run without a held transaction is, beside the
	// one with it.
	freeShare = 5
)

// runHeld lets jobs flow, without and with a transaction open elsewhere.
func (l *lab) runHeld(ctx context.Context) error {
	for _, c := range l.chosen("jobq, tuned", "graphile-worker, tuned", "river, tuned") {
		for _, held := range []bool{false, true} {
			if err := l.with(ctx, c, func(b *bed) error { return b.held(ctx, held) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bed) held(ctx context.Context, held bool) error {
	test, duration := "nothing open", b.lab.held/freeShare
	if held {
		test, duration = "transaction open", b.lab.held
		tx, err := b.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has done nothing
		if _, err := tx.Exec(ctx, "select count(*) from pg_class"); err != nil {
			return err
		}
	}
	if err := b.add(ctx, flowAhead); err != nil { // nobody begins by waiting
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the child when the feeding fails
	child, err := launch(ctx, b.peers, b.contender, b.url, "work", order{ReportMs: reportEvery})
	if err != nil {
		return err
	}
	if err := child.awaitReady(); err != nil {
		return err
	}
	stopRates := measure.Rates(max(duration/60, 100*time.Millisecond), func() int64 { return child.say().Ran })
	err = b.feed(ctx, child, duration)
	rates := stopRates()
	if err != nil {
		return err
	}
	end, err := child.stop()
	if err != nil {
		return err
	}
	first, last := rates.Ends()
	b.say("%-10s %-28s %-28s %8.0f/s, then %.0f/s", "held", test, b.contender, first, last)
	b.sheet.put(entry{"held", test, b.String(), "first tenth, jobs/s"}, first)
	b.sheet.put(entry{"held", test, b.String(), "last tenth, jobs/s"}, last)
	b.sheet.put(entry{"held", test, b.String(), "jobs in all"}, float64(end.Ran))
	b.sheet.charts = append(b.sheet.charts, chart{"held", test, b.String(), rates})
	return nil
}

// feed keeps a number of jobs waiting until the time is over.
func (b *bed) feed(ctx context.Context, child *running, duration time.Duration) error {
	end := time.Now().Add(duration)
	for time.Now().Before(end) {
		if child.hasEnded() {
			_, err := child.result()
			return err
		}
		if int64(b.filled) < child.say().Ran+flowAhead {
			if err := b.add(ctx, flowBatch); err != nil {
				return err
			}
			continue
		}
		pause(ctx, 2*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
