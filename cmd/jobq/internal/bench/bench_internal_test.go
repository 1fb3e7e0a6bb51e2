package bench

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// opened is a bench on a database of its own, closed with the test.
func opened(t *testing.T, url string, config Config) *bench {
	t.Helper()
	var err error
	config.Progress = io.Discard
	config.Pool, err = pgxpool.ParseConfig(url)
	require.NoError(t, err)
	b, err := open(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(b.close)
	return b
}

// prepared is opened, with the tables.
func prepared(t *testing.T, config Config) *bench {
	t.Helper()
	b := opened(t, pgtest.EmptyURL(t), config)
	require.NoError(t, b.prepare(t.Context()))
	return b
}

// Each scheduled job is compared with when it was due itself, also when it
// starts after those that were due later: here the first starts after all others.
func TestLateScheduledJob(t *testing.T) {
	t.Parallel()
	b := prepared(t, Config{Samples: 9, Workers: 1})
	started := make(chan arrival, b.Samples)
	others := make(chan arrival, b.Samples)
	var inOrder []arrival // written by the first job alone
	crew, err := b.startCrew(t.Context(), func(ctx context.Context, job *worker.Job[task]) error {
		a := arrival{job.Args.N, time.Now()}
		if a.n > 0 {
			started <- a
			others <- a
			return nil
		}
		for range b.Samples - 1 {
			select {
			case other := <-others:
				inOrder = append(inOrder, other)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		a.at = time.Now()
		started <- a
		inOrder = append(inOrder, a)
		return nil
	})
	require.NoError(t, err)
	samples, err := b.timeScheduled(crew.ctx, started)
	require.NoError(t, crew.stop())
	require.NoError(t, err)
	require.Len(t, inOrder, len(samples))
	last := len(samples) - 1
	require.Zero(t, inOrder[last].n)
	// The others may change places among themselves between the two channels.
	var want []time.Duration
	for _, a := range inOrder {
		require.Zero(t, time.Duration(a.n)%scheduleApart)
		want = append(want, samples[last]-inOrder[last].at.Sub(a.at)-time.Duration(a.n))
	}
	require.ElementsMatch(t, want, samples)
	require.Equal(t, slices.Max(samples), samples[last])
	require.GreaterOrEqual(t, samples[last], time.Duration(last)*scheduleApart-10*time.Millisecond, "but for what clocks may differ")
}

// The tables are settled before a drain, so that autovacuum finds nothing of
// what was filled in.
func TestDrainSettles(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := prepared(t, Config{Jobs: 300, Workers: 1})
	require.NoError(t, b.fill(ctx, b.Jobs))
	require.NoError(t, b.fillHistory(ctx, 200))
	_, err := b.drain(ctx, "drain")
	require.NoError(t, err)
	for _, table := range []string{"pending", pgtest.History} {
		var vacuumed bool
		require.NoError(t, b.pool.QueryRow(ctx, `
			select count(*) > 0 from pg_stat_all_tables s
			where s.schemaname = $1 and starts_with(s.relname, $2) and s.last_vacuum is not null and s.last_analyze is not null`,
			b.name, table).Scan(&vacuumed))
		require.True(t, vacuumed, table)
	}
}

// A schema that was never made is not removed, nor waited for, where nothing
// can be.
func TestRemoveNothing(t *testing.T) {
	t.Parallel()
	b := opened(t, pgtest.EmptyURL(t)+"&default_transaction_read_only=on", Config{})
	require.NoError(t, b.remove(t.Context()), "who waits in vain says so")
}

// The tracer knows how many round trips were under way at once, and for how
// long: here two of 100 ms, by two connections.
func TestTracerConnections(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := opened(t, pgtest.EmptyURL(t), Config{})
	before := b.tracer.read()
	require.Equal(t, 1, before.connections())
	var group errgroup.Group
	for range 2 {
		group.Go(func() error {
			batch := &pgx.Batch{}
			batch.Queue("select pg_sleep(0.05)")
			batch.Queue("select pg_sleep(0.05)")
			return b.pool.SendBatch(ctx, batch).Close()
		})
	}
	require.NoError(t, group.Wait())
	sent := b.tracer.read().since(before)
	require.EqualValues(t, 4, sent.statements)
	require.EqualValues(t, 2, sent.roundTrips)
	require.GreaterOrEqual(t, sent.waited(), 200*time.Millisecond)
	_, err := b.pool.Exec(ctx, "no SQL")
	require.Error(t, err)
	require.Zero(t, b.tracer.underWay, "what fails has ended too")

	// Moments do not count.
	const ms = time.Millisecond
	for want, at := range map[int][]time.Duration{
		1: {50 * ms, 900 * ms, 40 * ms, 1 * ms},
		2: {10 * ms, 200 * ms, 780 * ms, 10 * ms},
		3: {10 * ms, 200 * ms, 600 * ms, 30 * ms, 25 * ms},
	} {
		require.Equal(t, want, traced{at: at}.connections())
	}
}

// A worker that keeps two connections busy half of the time is not limited by
// the server, as one connection would be that is busy all the time.
func TestLimitOfTwoConnections(t *testing.T) {
	t.Parallel()
	b := &bench{}
	usage := measure.Usage{Elapsed: time.Second}
	half := traced{at: []time.Duration{400 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond}}
	require.Contains(t, b.limit(usage, half, half.connections()), "the client: its connections wait for the server 50 %")
	busy := traced{at: []time.Duration{0, time.Second}}
	require.Contains(t, b.limit(usage, busy, busy.connections()), "the server, whose CPU cannot be seen from here: connections wait for it 100 %")
}
