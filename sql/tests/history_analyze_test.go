package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// historyStatistics counts the statistics of run as a whole.
const historyStatistics = "select count(*) from pg_stats where schemaname = 'jobq' and tablename = 'run' and inherited"

// analyzed makes the statistics that autovacuum and the janitor make. A plain
// `analyze` would make those of partitioned tables as well.
func (q *queue) analyzed() {
	q.Helper()
	var tables string
	require.NoError(q, q.pool.QueryRow(context.Background(),
		"select string_agg(c.oid::regclass::text, ', ') from pg_class c where c.relnamespace = 'jobq'::regnamespace and c.relkind = 'r'").Scan(&tables))
	q.exec("vacuum analyze " + tables)
	require.True(q, q.historyAnalyze("1 day"))
}

func (q *queue) historyAnalyze(every string) (analyzed bool) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(), "select jobq.history_analyze($1::text::interval)", every).Scan(&analyzed))
	return analyzed
}

// The history gets statistics from a thousand rows on, then once in the time
// given, and when there are ten times as many rows; and again when they are gone,
// as after an analyze that was rolled back.
func TestHistoryAnalyze(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	add := func(from, count int) {
		require.NoError(t, pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "set local track_counts = off") // they come some time later
			require.NoError(t, err)
			_, err = tx.Exec(ctx, fillEnded, from, count, 0, false)
			return err
		}))
		q.exec("vacuum jobq.run_default, jobq." + q.partitionOfToday()) // knows how many there are
	}
	require.False(t, q.historyAnalyze("0"), "there is nothing")
	add(1_000, 900)
	require.False(t, q.historyAnalyze("0"), "there is little")
	add(2_000, 600)

	tx, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	for range 2 {
		_, err = tx.Exec(ctx, "select jobq.history_analyze('1 day')")
		require.NoError(t, err)
	}
	var target string
	require.NoError(t, tx.QueryRow(ctx, "show default_statistics_target").Scan(&target))
	require.Equal(t, "100", target)
	require.NoError(t, tx.Rollback(ctx))
	require.Zero(t, q.number(historyStatistics))

	require.True(t, q.historyAnalyze("1 day"))
	require.Equal(t, 1, q.number(historyStatistics))
	require.Equal(t, 15, q.number("select n_distinct from pg_stats where schemaname = 'jobq' and tablename = 'run' and inherited"))
	settled := func() bool { return !q.historyAnalyze("1 day") } // PostgreSQL 14 tells the time some time later
	require.Eventually(t, settled, patience, time.Millisecond)
	require.True(t, q.historyAnalyze("0"))
	add(10_000, 13_000)
	require.False(t, q.historyAnalyze("1 day"), "less than ten times as many")
	add(30_000, 2_000)
	require.True(t, q.historyAnalyze("1 day"))
	require.Eventually(t, settled, patience, time.Millisecond)
}

func (q *queue) partitionOfToday() (name string) {
	q.Helper()
	require.NoError(q, q.pool.QueryRow(context.Background(),
		"select 'run_' || to_char((now() at time zone 'UTC')::date, 'YYYYMMDD')").Scan(&name))
	return name
}

// What it reads is bounded however large a day is, and the less of each day the
// more days there are.
func TestHistoryAnalyzeIsBounded(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.withoutAutovacuum()
	day := q.partitionOfToday()
	q.exec("alter table jobq." + day + " set (fillfactor = 10)")
	q.exec(fillEnded, 1_000, 60_000, 0, false)
	q.exec("vacuum jobq." + day)
	pages := q.number("select relpages from pg_class where relname = $1", day)
	require.Greater(t, pages, 7_000)
	const most = 9_000 // 2 samples of 3,000 rows, and catalogs
	buffers := explainBuffers(t, q.pool, "select jobq.history_analyze('0')")
	t.Logf("%d buffers, of %d pages", buffers, pages)
	require.LessOrEqual(t, buffers, most)
	const target = "select cardinality(histogram_bounds::text::bigint[]) - 1 from pg_stats where schemaname = 'jobq' and tablename = 'run' and inherited"
	require.Equal(t, 10, q.number(target))
	q.exec("select jobq.partition_add('run', (now() at time zone 'UTC')::date + i) from generate_series(4, 48) i")
	require.Equal(t, 50, q.number("select count(*) from pg_inherits where inhparent = 'jobq.run'::regclass"))
	require.True(t, q.historyAnalyze("0"))
	require.Equal(t, 2, q.number(target))
}

// While a day is being vacuumed, the others are analyzed, days are made and days go.
func TestHistoryWhileADayIsVacuumed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.withoutAutovacuum()
	q.exec(fillEnded, 1_000, 4_000, 0, false)
	day := q.partitionOfToday()
	q.exec("vacuum jobq." + day)
	_, err := q.queries.PartitionAdd(ctx, "run", -20)
	require.NoError(t, err)
	vacuum, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = vacuum.Rollback(ctx) }()
	_, err = vacuum.Exec(ctx, fmt.Sprintf("lock table jobq.%s in share update exclusive mode", day)) // as a vacuum has it
	require.NoError(t, err)

	janitor, err := q.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = janitor.Rollback(ctx) }()
	_, err = janitor.Exec(ctx, "set local lock_timeout = '100 ms'")
	require.NoError(t, err)
	queries := q.schema.Queries(janitor)
	analyzed, err := queries.HistoryAnalyze(ctx, db.Interval(0))
	require.NoError(t, err)
	require.True(t, analyzed)
	added, err := queries.PartitionAdd(ctx, "run", 5)
	require.NoError(t, err)
	require.True(t, added)
	pruned, err := queries.PartitionPrune(ctx, "run")
	require.NoError(t, err)
	require.NotEmpty(t, pruned)
	require.NoError(t, janitor.Commit(ctx))
	require.Equal(t, 1, q.number(historyStatistics))
}
