package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/postgres"
)

func serverOf(ctx context.Context, t *testing.T) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(ctx, postgres.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.WithoutCancel(ctx)) }) // it is removed with its folder anyhow
	return server
}

// Goal: as many jobs run as the figures are divided by, also when they fill no
// batch; none, or not all of them, is no round.
func TestRoundCounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := serverOf(ctx, t)
	layout, err := layouts.Named(layouts.ThreeTables)
	require.NoError(t, err)
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	for _, jobs := range []int{batch * 3 / 2, 20} {
		_, err := round(ctx, server, layout, 100, jobs)
		require.NoError(t, err)
		var finished int
		require.NoError(t, conn.QueryRow(ctx, "select count(*) from layout.finished").Scan(&finished))
		require.Equal(t, jobs, finished)
	}
	_, err = round(ctx, server, layout, 100, 0)
	require.ErrorContains(t, err, "inserted 0 jobs")

	partly := layout
	partly.Insert = "insert into pending (id, position, queue, args) select n, n, case when n = 1 then 'other' else 'default' end, $2 " +
		"from (select nextval('id_seq') as n from generate_series(1, $1)) x"
	_, err = round(ctx, server, partly, 100, 10)
	require.ErrorContains(t, err, "9 jobs ran of 10")
}

// Goal: WAL is counted where it was written: args that are written once, by
// the insert, cost the drain nothing.
func TestRoundWAL(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const argBytes = 100_000
	layout, err := layouts.Named("three tables and payload")
	require.NoError(t, err)
	f, err := round(ctx, serverOf(ctx, t), layout, argBytes, 20)
	require.NoError(t, err)
	require.Greater(t, f.insertWAL, 0.9*argBytes)
	require.Less(t, f.drainWAL, 0.5*argBytes)
}

// The middle of an even number of rounds is a round's, as everywhere.
func TestReportMedian(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	report(&out, "l", "s", []figures{{1, 2, 3, 4, 5}, {11, 12, 13, 14, 15}})
	require.Regexp(t, `^l +s +1 +2 +3 +4\.0 +5   drain 3 to 13\n$`, out.String())
}
