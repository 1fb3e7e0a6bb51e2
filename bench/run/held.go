package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
	"github.com/jobq-dev/jobq/internal/measure"
)

const (
	flowAhead = 20_000
	flowBatch = 2_000
	// The run without a held transaction is shorter than the one with it; ours is
	// half as long, since its end is compared.
	freeShareOurs, freeShare = 2, 10
)

// runHeld lets jobs flow, without and with a transaction open elsewhere.
func (l *lab) runHeld(ctx context.Context) error {
	l.now.Rounds = 1
	for _, c := range l.Chosen("jobq, tuned", "graphile-worker, tuned", "river, tuned", "pg-boss, tuned") {
		for _, held := range []bool{false, true} {
			if err := l.with(ctx, c, func(b *bed) error { return b.held(ctx, held) }); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bed) held(ctx context.Context, held bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process when the feeding fails
	test, duration := "nothing open", b.lab.held/freeShare
	if b.String() == ours {
		duration = b.lab.held / freeShareOurs
	}
	stillOpen := func() error { return nil }
	if held {
		test, duration = "transaction open", b.lab.held
		tx, err := b.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has done nothing
		stillOpen = func() error {
			_, err := tx.Exec(ctx, "select count(*) from pg_class")
			return err
		}
		if err := stillOpen(); err != nil {
			return err
		}
	}
	if err := b.Add(ctx, flowAhead); err != nil { // nobody begins by waiting
		return err
	}
	process, err := b.One(ctx, child.Order{ReportMs: reportEvery})
	if err != nil {
		return err
	}
	every := max(duration/60, 100*time.Millisecond)
	use := stage.NewUse(every)
	stopRates := measure.Rates(every, func() int64 { return process.Say().Ran })
	err = b.feed(ctx, process, duration, func(ctx context.Context) error { return use.Read(ctx, b.Database) })
	rates := stopRates()
	if err == nil {
		err = use.Now(ctx, b.Database)
	}
	if err != nil {
		return err
	}
	if err := stillOpen(); err != nil {
		return fmt.Errorf("the transaction was not open to the end: %w", err)
	}
	end, err := process.Stop()
	if err != nil {
		return err
	}
	if err := b.checkLeft(ctx, end.Ran); err != nil {
		return err
	}
	b.putHeld(test, rates, use, end.Ran)
	return nil
}

// putHeld records the rate of a run, and what it left in the tables.
func (b *bed) putHeld(test string, rates measure.Series, use *stage.Use, ran int64) {
	first, last := rates.Ends()
	best := measure.Top(rates.Fit(10))
	b.say("%-10s %-28s %-28s %8.0f/s, then %.0f/s, at best %.0f/s", "held", test, b.Contender, first, last, best)
	b.sheet.Put(sheet.Of("held", test, b.String(), "first tenth, jobs/s"), first)
	b.sheet.Put(sheet.Of("held", test, b.String(), "best tenth, jobs/s"), best)
	b.sheet.Put(sheet.Of("held", test, b.String(), "last tenth, jobs/s"), last)
	b.sheet.Put(sheet.Of("held", test, b.String(), "jobs in all"), float64(ran))
	for _, f := range use.Figures(ran) {
		b.sheet.Put(sheet.Of("held", test, b.String(), f.Name), f.Value)
	}
	for _, over := range []sheet.Chart{{Unit: perSec, Series: rates}, {Unit: "dead rows", Series: use.Dead}, {Unit: "MB on disk", Series: use.Disk}} {
		over.Scenario, over.Test, over.Contender = "held", test, b.String()
		b.sheet.Draw(over)
	}
}

// feed keeps a number of jobs waiting until the time is over, and lets somebody look at the tables now and then.
func (b *bed) feed(ctx context.Context, process *stage.Process, duration time.Duration, look func(context.Context) error) error {
	end := time.Now().Add(duration)
	for time.Now().Before(end) {
		if process.HasEnded() {
			_, err := process.Result()
			return err
		}
		if err := look(ctx); err != nil {
			return err
		}
		if int64(b.Filled) < process.Say().Ran+flowAhead {
			if err := b.Add(ctx, flowBatch); err != nil {
				return err
			}
			continue
		}
		child.Pause(ctx, 2*time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}
