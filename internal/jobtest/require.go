package jobtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
)

// RequireNothingStored fails if any table has a trace of a job.
func RequireNothingStored(t *testing.T, client *jobq.Client) {
	t.Helper()
	for _, table := range []string{"job", "payload", "unique_key", "attempt", "stat_delta"} {
		var count int
		require.NoError(t, client.Pool().QueryRow(context.Background(), "select count(*) from jobq."+table).Scan(&count))
		require.Zero(t, count, table)
	}
}

// RequireKeysRight fails unless the keys that are held are those of the
// unfinished jobs: one that a job holds in vain would refuse all others for ever.
func RequireKeysRight(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	rows, err := pool.Query(context.Background(), `
		with wanted as (select kind, unique_key as key, id from jobq.job where unique_key is not null and finished_at is null)
		select coalesce(w.id, u.job_id) from wanted w full join jobq.unique_key u on u.kind = w.kind and u.key = w.key and u.job_id = w.id
			where w.id is null or u.job_id is null`)
	require.NoError(t, err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(t, err)
	require.Empty(t, wrong)
}

// RequireRefusal checks that an error of a call is a refusal with our code, in one line
// that names the argument and the limit, and that its context is no more than
// which functions it came through.
func RequireRefusal(t *testing.T, err error, argument, limit, call string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.True(t, errors.As(err, &pgErr), "%s: %v", call, err)
	require.Equal(t, string(operator.CodeInvalid), pgErr.Code, "%s: %v", call, err)
	require.Contains(t, pgErr.Message, argument, call)
	require.Contains(t, pgErr.Message, limit, call)
	require.NotContains(t, pgErr.Message, "\n", call)
	require.LessOrEqual(t, len(pgErr.Message), 400, call)
	require.Empty(t, pgErr.Detail, call)
	require.NotContains(t, strings.ToLower(pgErr.Where), "insert into", call)
	require.LessOrEqual(t, strings.Count(pgErr.Where, "\n"), 8, "%s: %s", call, pgErr.Where) // a statement in it may have five lines
}
