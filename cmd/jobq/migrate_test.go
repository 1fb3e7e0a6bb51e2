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
	require.Contains(t, out, "would do 001 tables")
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
