package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/child"
	"github.com/jobq-dev/jobq/bench/sheet"
	"github.com/jobq-dev/jobq/bench/stage"
)

// TestMain lets the test binary be the child processes too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		main()
		return
	}
	os.Exit(m.Run())
}

// One cell of each group runs with jobq alone, and none has a problem; the report has its bars and verdicts.
func TestCells(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config := stage.Config{Only: ours, Peers: "../peers", Fleeting: true}
	server, err := stage.Start(ctx, config)
	require.NoError(t, err)
	defer server.Stop(ctx)
	second := times{
		Settle: time.Second, Throughput: time.Second, Before: 2 * time.Second, During: 2 * time.Second,
		Burst: time.Second, After: 2 * time.Second, Starve: 2 * time.Second, DrainLimit: 5 * time.Minute,
	}
	l := &lab{Server: server, config: config, log: io.Discard, sheet: sheet.New(), times: second, rate: 100}
	for _, s := range []section{
		{name: "queues", title: "Several queues", run: (*lab).runQueues},
		{name: "starvation", title: "Starvation", run: (*lab).runStarvation},
		{name: "chaos", title: "Chaos", run: func(l *lab, ctx context.Context) error {
			return l.troubled(ctx, "chaos", []trouble{chaos()[0], chaos()[3]})
		}},
		{name: "pressure", title: "Pressure", run: func(l *lab, ctx context.Context) error {
			return l.troubled(ctx, "pressure", []trouble{pressure()[0], pressure()[2]})
		}},
	} {
		require.NoError(t, l.measure(ctx, s), s.name)
		require.Empty(t, l.now.Problems, s.name)
	}
	left, ok := l.sheet.Median(sheet.Of("chaos", "process killed", ours, unfinished))
	require.True(t, ok)
	require.Zero(t, left, "what a killed process had begun is run by the other one")
	low, ok := l.sheet.Median(sheet.Of("starvation", "", ours, "low, jobs/s"))
	require.True(t, ok)
	require.Zero(t, low, "priorities are strict")
	_, ok = l.sheet.Median(sheet.Of("starvation", aged, ours, "low, jobs/s"))
	require.True(t, ok)

	var report strings.Builder
	require.NoError(t, l.report(ctx, &report))
	require.Contains(t, report.String(), "| chaos, server restarted: jobs unfinished | 0.00 | ≤ 0.00 | met |")
	require.Contains(t, report.String(), "| throughput, 4 slots: jobs/s, of the best peer's | | ≥ 1.00 | not measured |")
	require.Contains(t, report.String(), "\n## Starvation\n")
}

// Transactions that stay open, however many, leave all sessions of the pool to those who add jobs.
func TestTransactionsLeaveThePool(t *testing.T) {
	t.Parallel()
	server, err := stage.Start(t.Context(), stage.Config{Only: ours, Fleeting: true})
	require.NoError(t, err)
	defer server.Stop(context.Background())
	l := &lab{Server: server, log: io.Discard, sheet: sheet.New(), now: &sheet.Run{}}
	require.NoError(t, server.With(t.Context(), l.contenders()[0], func(d *stage.Database) error {
		f := newFlow(d, child.Order{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel() // before the database goes
		for i, trouble := range []trouble{pressure()[0], pressure()[2]} {
			ended := make(chan error, 1)
			go func() { ended <- trouble.make(ctx, l, f, time.Hour) }()
			for open := 0; open < 1+i*readers; child.Pause(t.Context(), 10*time.Millisecond) {
				require.NoError(t, server.Admin.QueryRow(t.Context(), `select count(*) from pg_stat_activity s
					where s.datname = $1 and s.xact_start is not null`, d.Pool.Config().ConnConfig.Database).Scan(&open))
			}
			require.Zero(t, d.Pool.Stat().AcquiredConns(), trouble.name)
			select {
			case err := <-ended:
				require.NoError(t, err, "it lasts an hour")
			default:
			}
		}
		return nil
	}))
}

// A process that ends by itself is a problem of its cell, and the run goes on.
func TestProblem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server, err := stage.Start(ctx, stage.Config{Only: ours, Fleeting: true})
	require.NoError(t, err)
	defer server.Stop(ctx)
	l := &lab{Server: server, log: io.Discard, sheet: sheet.New(), now: &sheet.Run{}}
	c := l.contenders()[0]
	require.NoError(t, l.cell(ctx, "chaos", "a test", c, func(context.Context, *stage.Database) error { return errors.New("it is gone") }))
	require.Len(t, l.now.Problems, 1)
	require.Contains(t, l.now.Problems[0], "chaos, a test, jobq: ")
	require.Contains(t, l.now.Problems[0], "it is gone")
}

// A statement that is refused is no server that is away.
func TestIsAway(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"57P01", "57P03", "08006", "53300"} {
		require.True(t, isAway(&pgconn.PgError{Code: code}), code)
	}
	require.True(t, isAway(io.ErrUnexpectedEOF))
	require.False(t, isAway(&pgconn.PgError{Code: "42703"}))
}

// The load is what was asked for: so many waiting, one low for each nine high, and by the clock.
func TestLoad(t *testing.T) {
	t.Parallel()
	next := keep(400, []string{"a", "b"})
	due := next(0, 0, 0)
	require.Len(t, due, 2)
	require.Equal(t, []int{200, 200}, []int{due[0].jobs, due[1].jobs})
	require.Equal(t, "b", due[1].like.Queue)
	require.Empty(t, next(400, 5, 0), "little is missing")
	require.Len(t, next(400, 10, 0), 2)

	mixed := keepMixed(360)
	due = mixed(0, 0, 0)
	require.Equal(t, 360, due[0].jobs)
	require.Equal(t, 40, due[1].jobs)
	require.True(t, due[1].like.Low)
	require.Empty(t, mixed(400, 30, 30), "only low ones ran")
	require.Equal(t, 90, mixed(400, 100, 10)[0].jobs)

	f, now := &flow{}, time.Unix(1000, 0)
	f.rate.Store(800)
	next = f.atRate(func() time.Time { return now })
	now = now.Add(5 * time.Millisecond)
	require.Empty(t, next(0, 0, 0), "a hundredth of a second's jobs at a time")
	now = now.Add(10 * time.Millisecond)
	require.Equal(t, 12, next(0, 0, 0)[0].jobs)
	now = now.Add(3 * time.Second)
	require.Equal(t, 2400, next(0, 0, 0)[0].jobs, "the server was away")
}

// All cells of four systems fit into an hour.
func TestDuration(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, standard.most(4), time.Hour)
}

// What would measure nothing, or keep what means nothing, is refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	good := lab{rate: 1, times: standard}
	require.NoError(t, good.check("chaos,queues", "NEUTRAL.md"))
	require.ErrorContains(t, good.check("caos", ""), `no "caos": there are throughput, chaos`)
	quick := good
	quick.times = short
	require.NoError(t, quick.check("", ""))
	require.ErrorContains(t, quick.check("", "NEUTRAL.md"), "-quick measures nothing")
	idle := good
	idle.rate = 0
	require.ErrorContains(t, idle.check("", ""), "-rate")
}
