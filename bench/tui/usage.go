package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/measure"
)

// usage is CPU time and memory of the UI, and CPU time of its sessions.
type usage struct {
	at            time.Time
	ui            time.Duration
	sessions      map[int32]time.Duration // by the server's process
	residentBytes int64
}

// serverSince is what the sessions have used that are there now.
func (u usage) serverSince(before usage) (used time.Duration) {
	for pid, total := range u.sessions {
		used += total - before.sessions[pid]
	}
	return used
}

func (b *bench) usage(ctx context.Context) (u usage, err error) {
	u.at = time.Now()
	pid, err := strconv.Atoi(strings.TrimSpace(b.tmux("display", "-p", "-t", session, "#{pane_pid}")))
	if err != nil {
		return u, err
	}
	ui, err := measure.ReadProcess(pid)
	if err != nil {
		return u, err
	}
	u.ui = ui.Own
	if u.residentBytes, err = readResident(pid); err != nil {
		return u, err
	}
	// Listeners have one name, the worker's too: they count where the UI has sessions of its own.
	rows, err := b.pool.Query(ctx, `select pid from pg_stat_activity
		where exists (select from pg_stat_activity where application_name = 'jobq-tui')
		  and (application_name = 'jobq-tui' or application_name = 'jobq-listen' and query not like '%jobq_work%')`)
	if err != nil {
		return u, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return u, err
	}
	u.sessions, err = sessionTimes(pids)
	return u, err
}

// figures are what a duration came to.
type figures struct {
	uiPercent, serverPercent float64 // of a core
	residentBytes            int64
	jobsPerSecond            float64
}

// measure looks at the UI for a while, and at how many jobs run meanwhile.
func (b *bench) measure(ctx context.Context, name string, span time.Duration, loaded bool) error {
	before, err := b.usage(ctx)
	if err != nil {
		return err
	}
	done := b.done.Load()
	if err := pause(ctx, span); err != nil {
		return err
	}
	after, err := b.usage(ctx)
	if err != nil {
		return err
	}
	elapsed := after.at.Sub(before.at).Seconds()
	f := figures{
		uiPercent: 100 * (after.ui - before.ui).Seconds() / elapsed, serverPercent: 100 * after.serverSince(before).Seconds() / elapsed,
		residentBytes: after.residentBytes, jobsPerSecond: float64(b.done.Load()-done) / elapsed,
	}
	fmt.Printf("%-18s UI %.1f %% of a core, %d MB; its sessions %.1f %% of a core; %.0f jobs/s\n", name,
		f.uiPercent, f.residentBytes>>20, f.serverPercent, f.jobsPerSecond)
	b.bars.usage(f, loaded)
	return nil
}
