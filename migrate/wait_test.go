package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// Any role may take the lock of migrations. Who waits for it says so, once, and
// who has it; and goes on when it is free.
func TestSaysWhoHasTheLock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := pgtest.Connect(t, pgtest.EmptyURL(t))
	config := pool.Config().ConnConfig.Copy()
	config.RuntimeParams["application_name"] = "the thief"
	thief, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	defer func() { _ = thief.Close(ctx) }()
	schema, err := db.NewSchema("jobq")
	require.NoError(t, err)
	class, object := schema.AdvisoryKey(db.LockMigrate)
	_, err = thief.Exec(ctx, "select pg_advisory_lock($1, $2)", class, object)
	require.NoError(t, err)

	said := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		_, err := migrate.Up(ctx, pool, &migrate.Config{Logger: slog.New(slog.NewTextHandler(lines(said), nil))})
		ended <- err
	}()
	line := <-said
	require.Contains(t, line, `level=WARN msg="waiting for another migration"`)
	require.Contains(t, line, fmt.Sprintf(`holder_pid=%d holder_application="the thief"`, thief.PgConn().PID()))
	_, err = thief.Exec(ctx, "select pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	close(said)
	for line := range said {
		require.NotContains(t, line, "waiting")
	}
}

// lines is a log of which a test gets each line.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(bytes.Clone(line))
	return len(line), nil
}
