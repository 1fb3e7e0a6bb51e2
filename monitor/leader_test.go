package monitor_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
)

// Nothing is guessed about a janitor's session that the role may not see: it is neither local, nor has it been
// there since the year 1.
func TestLeaderThatIsNotShown(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	leading, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer leading.Release()
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	class, object := schema.AdvisoryKey(db.LockJanitor)
	_, err = leading.Exec(ctx, "select pg_advisory_lock($1, $2)", class, object)
	require.NoError(t, err)
	defer func() {
		_, err := leading.Exec(ctx, "select pg_advisory_unlock_all()")
		require.NoError(t, err)
	}()
	leader := func(pool *pgxpool.Pool) *monitor.Leader {
		client, err := jobq.NewClient(pool, nil)
		require.NoError(t, err)
		found, err := monitor.New(client).Leader(ctx)
		require.NoError(t, err)
		require.NotNil(t, found)
		return found
	}
	shown := leader(pool)
	require.NotEmpty(t, shown.Address)
	require.WithinDuration(t, time.Now(), shown.Since, time.Hour)

	_, err = pool.Exec(ctx, "create role sees_no_sessions")
	require.NoError(t, err)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["role"] = "sees_no_sessions"
	lesser, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	defer lesser.Close()
	require.Equal(t, &monitor.Leader{PID: shown.PID}, leader(lesser))
}
