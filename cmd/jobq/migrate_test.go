package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// A dry run ends with what an operator has to know: whether the programs of today go on.
func TestWhoGoesOn(t *testing.T) {
	t.Parallel()
	at := func(version, compatibleFrom int) migrate.Version {
		return migrate.Version{Version: version, CompatibleFrom: compatibleFrom}
	}
	require.Equal(t, "there are no tables yet", whoGoesOn([]migrate.Version{at(1, 1), at(2, 1)}))
	require.Equal(t, "programs that know version 10 go on: migrate while they work", whoGoesOn([]migrate.Version{at(11, 10), at(12, 9)}))
	require.Equal(t, "programs must know version 11: stop workers and janitors of earlier ones first", whoGoesOn([]migrate.Version{at(11, 11), at(12, 10)}))

	out, _, code := invoke(t, "", "migrate", "up", "--dry-run", "--database-url", pgtest.EmptyURL(t))
	require.Zero(t, code)
	require.Contains(t, out, "would do 001 initial")
	require.Contains(t, out, "there are no tables yet")
}

// A migration that waits says so on standard error, with the session that it waits for,
// and not in the middle of its JSON.
func TestMigrateSaysForWhomItWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	url := pgtest.URL(t)
	other, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { _ = other.Close(ctx) }()
	schema, err := db.NewSchema("")
	require.NoError(t, err)
	class, object := schema.AdvisoryKey(db.LockMigrate)
	_, err = other.Exec(ctx, "select pg_advisory_lock($1, $2)", class, object)
	require.NoError(t, err)

	var out, errs syncBuffer
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"migrate", "up", "--json", "--database-url", url}, strings.NewReader(""), &out, &errs)
	}()
	require.Eventually(t, func() bool {
		return strings.Contains(errs.String(), fmt.Sprintf(`msg="waiting for another migration" holder_pid=%d`, other.PgConn().PID()))
	}, patience, 5*time.Millisecond)
	_, err = other.Exec(ctx, "select pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.Zero(t, <-ended)
	require.JSONEq(t, `{"direction": "up", "versions": []}`, out.String())
}

// Where jobq's tables are in other schemas, the error names these: a flag, or a variable, was forgotten.
func TestNotMigratedNamesSchemas(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := pgtest.EmptyURL(t)
	list := func(args ...string) string {
		t.Helper()
		_, stderr, code := invoke(t, "", append([]string{"list", "--database-url", url}, args...)...)
		require.Equal(t, exitError, code, stderr)
		return stderr
	}
	require.Equal(t, "jobq: the database is not migrated: run `jobq migrate up`\n", list())
	require.NoError(t, pgtest.Migrate(ctx, url, "my-jobs"))
	require.Equal(t, "jobq: the database is not migrated: there are no tables in schema jobq, but there are in my-jobs: "+
		"say --schema my-jobs or set JOBQ_SCHEMA; to make others, run `jobq migrate up`\n", list())
	require.NoError(t, pgtest.Migrate(ctx, url, "jobs2"))
	require.Contains(t, list("--schema", "jobs3"), "no tables in schema jobs3, but there are in jobs2, my-jobs: say --schema jobs2 or set JOBQ_SCHEMA; "+
		"to make others, run `jobq migrate up --schema jobs3`\n")
	_, stderr, code := invoke(t, "", "worker", "--database-url", url, "--run", "a=cat")
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "but there are in jobs2, my-jobs")
}
