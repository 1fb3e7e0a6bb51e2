package main

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
)

const (
	reportSeconds       = 600
	silentSeconds       = 60
	reportSecondsMin    = 3.0
	reportSettleMin     = 2 * time.Second
	progressEvery       = 1000 // ms
	reportHandler       = 2 * longHandler
	reporting, reticent = "a report a second", "no reports"
)

// runReports watches jobs that say all the time how far they are, beside the same ones that say nothing.
func (l *lab) runReports(ctx context.Context) error {
	l.now.Rounds = 1
	for _, c := range l.Chosen(oursAsIs) {
		for _, test := range []struct {
			name    string
			every   int
			seconds float64
		}{{reticent, 0, silentSeconds}, {reporting, progressEvery, reportSeconds}} {
			if err := l.with(ctx, c, func(b *bed) error { return b.reports(ctx, test.name, test.every, l.seconds(test.seconds)) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// reported is what the server knows of the table of reports.
type reported struct {
	stored, updated, inPlace, dead, bytes int64
}

func (b *bed) reported(ctx context.Context) (r reported, err error) {
	err = b.Pool.QueryRow(ctx, `select n_tup_ins + n_tup_upd, n_tup_upd, n_tup_hot_upd, n_dead_tup, pg_total_relation_size(relid)
		from pg_stat_user_tables where relid = 'jobq.progress'::regclass`).Scan(&r.stored, &r.updated, &r.inPlace, &r.dead, &r.bytes)
	return r, err
}

func (b *bed) reports(ctx context.Context, test string, everyMs int, seconds float64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the process, whose jobs do not end
	process, err := b.busy(ctx, runningJobs, child.Order{ReportMs: progressEvery, Slots: runningJobs, HandlerMs: reportHandler, ProgressMs: everyMs})
	if err != nil {
		return err
	}
	child.Pause(ctx, max(time.Duration(min(b.scale, 1)*float64(idleSettle)), reportSettleMin))
	before, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	reportsBefore, err := b.reported(ctx)
	if err != nil {
		return err
	}
	cpu := -process.Say().CPUMicros
	child.Pause(ctx, time.Duration(max(seconds, reportSecondsMin)*float64(time.Second)))
	after, err := b.Meter.Read(ctx)
	if err != nil {
		return err
	}
	cpu += process.Say().CPUMicros
	now, err := b.reported(ctx)
	if err != nil {
		return err
	}
	usage := b.Meter.Since(before, after)
	elapsed, stored := usage.Elapsed.Seconds(), float64(now.stored-reportsBefore.stored)
	put := func(figure string, value float64) {
		b.say("%-10s %-28s %-28s %s %s", "reports", test, b.String(), sheet.Number(value), figure)
		b.sheet.Put(sheet.Of("reports", test, b.String(), figure), value)
	}
	put("reports/s", stored/elapsed)
	put(clientShare, float64(cpu)/1e4/elapsed)
	put(serverShare, 100*usage.ServerCPU.Seconds()/elapsed)
	put("WAL kB/s", float64(usage.WALBytes)/1000/elapsed)
	if everyMs > 0 && stored > 0 {
		put("WAL B/report", float64(usage.WALBytes)/stored)
		put("updates in place", float64(now.inPlace-reportsBefore.inPlace)/float64(max(now.updated-reportsBefore.updated, 1)))
		put("dead rows, last", float64(now.dead))
		put("MB of progress, last", float64(now.bytes)/1e6)
	}
	return b.stillBusy(ctx, process, runningJobs)
}
