package tests

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// A day that an operator has detached to keep it is never touched, however old,
// nor is another table with such a name: not by retention, and not by a
// migration down, which fails instead and changes nothing.
func TestRetentionLeavesOtherTables(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, day := range []int32{-30, -3} {
		_, err := q.queries.PartitionAdd(ctx, pgtest.History, day)
		require.NoError(t, err)
		q.finishedOn(int(day), true)
		name := pgtest.History + "_" + time.Now().UTC().AddDate(0, 0, int(day)).Format("20060102")
		q.exec("alter table jobq." + pgtest.History + " detach partition jobq." + name)
	}
	q.exec("create table jobq." + pgtest.History + "_20010101 (note text)")
	kept := func() int {
		return q.number("select count(*) from pg_class where relkind = 'r' and not relispartition and relname ~ '^" + pgtest.History + "_[0-9]{8}$'")
	}
	require.Equal(t, 3, kept())
	q.fillDay(-20, 1000, 10) // which is to go

	steps, removed := q.prunePayloads(10, 10)
	require.Equal(t, 5, removed)
	require.Equal(t, 2, steps, "one with ten jobs and one that drops the day")
	require.Equal(t, 3, kept())
	require.Equal(t, 2, q.number("select count(*) from jobq.payload"))
	require.Zero(t, q.number("select count(*) from pg_class where relname ~ '_past$'"))

	_, err := migrate.Down(ctx, q.pool, &migrate.Config{Target: -1, Logger: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "cannot drop")
	require.Equal(t, 3, kept())
}

// A day that was made again, while the earlier table of it is still to be
// dropped, stays in the history until then.
func TestPartitionPruneOfADayMadeAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.fillDay(-20, 1, 10)
	_, err := q.queries.PartitionAdd(ctx, pgtest.History, -20)
	require.NoError(t, err)
	q.finishedOn(-20, true)
	days := q.days(pgtest.History)
	for range 2 {
		_, err := q.queries.PartitionPrune(ctx, pgtest.History)
		require.NoError(t, err)
		_, removed := q.prunePayloads(100, 100)
		require.NotZero(t, removed)
	}
	require.Equal(t, days-1, q.days(pgtest.History))
	require.Zero(t, q.number("select count(*) from jobq.payload"))
}
