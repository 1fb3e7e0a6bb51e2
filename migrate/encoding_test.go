package migrate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/migrate"
)

// A database that is not UTF8 is refused in words before anything is made in it.
func TestRefusesOtherEncodings(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := pgtest.OwnServer(t)
	admin := pgtest.Connect(t, server.URL("postgres"))
	for _, encoding := range []string{"LATIN1", "SQL_ASCII"} {
		_, err := admin.Exec(ctx, fmt.Sprintf("create database other_%[1]s encoding '%[1]s' lc_collate 'C' lc_ctype 'C' template template0", encoding))
		require.NoError(t, err)
		var made string
		require.NoError(t, admin.QueryRow(ctx, "select datname from pg_database where pg_encoding_to_char(encoding) = $1", encoding).Scan(&made))
		pool, err := pgxpool.New(ctx, server.URL(made))
		require.NoError(t, err)
		_, err = migrate.Up(ctx, pool, nil)
		require.ErrorContains(t, err, fmt.Sprintf("the database has the encoding %s, and jobq needs UTF8", encoding))
		var schemas int
		require.NoError(t, pool.QueryRow(ctx, "select count(*) from pg_namespace where nspname = 'jobq'").Scan(&schemas))
		require.Zero(t, schemas)
		pool.Close()
	}
}
