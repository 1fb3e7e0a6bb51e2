package tests

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// The functions that take a run token are all of ownCalls, by the catalog. Each refuses tokens that a program has made from its own:
// of another slot, lease or time, without a code, or with a code of another key. Nothing is stored.
func TestRunTokensCannotBeForged(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	rows, err := q.pool.Query(context.Background(), `
		select p.proname::text from pg_proc p
			where p.pronamespace = 'jobq'::regnamespace and p.prosecdef and 'token' = any(p.proargnames)
				and p.proargtypes[array_position(p.proargnames, 'token') - 1] = 'text'::regtype`)
	require.NoError(t, err)
	functions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	for name := range ownCalls {
		require.Contains(t, functions, name)
	}
	require.Len(t, functions, len(ownCalls), "a function that takes a run token has its case in ownCalls: %s", functions)

	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	jobs := sorted(q.claim("a", 2))
	own, other := jobs[0], jobs[1]
	require.Equal(t, own.LeaseToken, other.LeaseToken)
	token := runToken(own)
	code := token[strings.LastIndexByte(token, '.'):]
	run := func(job db.JobClaimRow) string {
		token := runToken(job)
		return token[:strings.LastIndexByte(token, '.')]
	}
	key := slices.Repeat([]byte{1}, len(pgtest.RunKey))
	for _, name := range functions {
		for why, forged := range map[string]string{
			"another slot":  run(other) + code,
			"another key":   db.RunToken(key, other.LeaseToken, other.StartedAt.Time, other.Slot),
			"no code":       run(other),
			"an empty code": run(other) + ".",
			"zeros":         run(other) + "." + strings.Repeat("0", 32),
			"a short code":  runToken(other)[:len(runToken(other))-1],
		} {
			before := q.everything()
			require.ErrorContains(t, q.refusal(ownCalls[name], other.ID, forged), "SQLSTATE JQ001", "%s: %s", name, why)
			require.Equal(t, before, q.everything(), "%s: %s", name, why)
		}
		require.ErrorContains(t, q.refusal(ownCalls[name], other.ID, run(other)+code), "was not made by a worker", name)
		require.ErrorContains(t, q.refusal(ownCalls[name], other.ID, token), "this run has ended, or its lease is lost", "%s: the token of one's own run", name)
	}
}

// Each schema has a key of its own, which is random, and Go computes the codes that SQL checks.
func TestRunKeyIsOfItsSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	ctx := context.Background()
	var keys [][]byte
	for _, schema := range []string{"one", "two"} {
		_, err := migrate.Up(ctx, pool, &migrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		var key []byte
		require.NoError(t, pool.QueryRow(ctx, "select "+schema+".run_key()").Scan(&key))
		require.Len(t, key, 128)
		keys = append(keys, key)
		var code string
		at := time.UnixMicro(6)
		require.NoError(t, pool.QueryRow(ctx, "select "+schema+".run_token_code('5.6.7')").Scan(&code))
		require.Equal(t, "5.6.7."+code, db.RunToken(key, 5, at, 7))
	}
	require.NotEqual(t, keys[0], keys[1])
	require.NotEqual(t, keys[0][:64], keys[0][64:])
}
