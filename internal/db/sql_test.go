package db_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// Every statement that changes or ends a lease names its token and its owner;
// the reaper, which has neither, names the expiry.
func TestEveryLeaseWriteIsFenced(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../sql/queries/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	touches := regexp.MustCompile(`(delete from|update) jobq\.running`)
	found := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(content), "-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			if !touches.MatchString(query) {
				continue
			}
			found++
			if name == "LeaseReap" {
				require.Regexp(t, `(?s)r\.lease_expires_at < clock_timestamp\(\).*for update of r skip locked.*delete`, query, "the expiry must be checked on the row as locked")
				continue
			}
			require.Regexp(t, `lease_token = \S+ and \S+lease_owner = sqlc\.arg\(owner\)`, query, name)
		}
	}
	require.Equal(t, 6, found, "claims about six statements: extend, progress, checkpoint, complete, end, reap")
}

// The hot statements keep their plans, made on empty tables and never
// analysed, with many rows: index lookups only, and no sort of what waits.
func TestHotPlans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, db.HotSettings)
	require.NoError(t, err)
	statements := map[string]struct{ sql, args string }{
		"claim":    {db.JobClaim, "'1 hour', 'a', '{-32769}', '{0}', '{32767}', 'default', '{k}', 100"},
		"complete": {db.JobComplete, "'{1,2}', '{1,1}', array[null, null]::jsonb[], 'a', true"},
		"end":      {db.JobEnd, "'{1}', '{1}', '{failed}', '{e}', array['']::text[], array[null]::interval[], '{f}', '{0}', '{f}', 'a'"},
		"extend":   {db.LeaseExtend, "'{1}', '{1}', 'a', '1 hour'"},
	}
	for name, statement := range statements {
		_, err := tx.Exec(ctx, fmt.Sprintf("prepare hot_%s as %s", name, q.schema.SQL(statement.sql)))
		require.NoError(t, err, name)
	}
	explain := func(when string) {
		for name, statement := range statements {
			rows, err := tx.Query(ctx, fmt.Sprintf("explain execute hot_%s(%s)", name, statement.args))
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			for _, bad := range []string{"Seq Scan on pending", "Seq Scan on running", "Bitmap", "Merge Join"} {
				require.NotContains(t, plan, bad, "%s, %s:\n%s", name, when, plan)
			}
			if name == "claim" {
				require.Contains(t, plan, "Index Scan using pending_claim_idx", "%s:\n%s", when, plan)
				require.Contains(t, plan, "Tid Scan on pending", "%s:\n%s", when, plan)
				require.NotContains(t, plan, "Sort", "%s:\n%s", when, plan)
			} else {
				require.Contains(t, plan, "Index Scan using running_pkey", "%s, %s:\n%s", name, when, plan)
			}
		}
	}
	explain("on empty tables")
	_, err = tx.Exec(ctx, "insert into jobq.pending (kind, queue, priority) select 'k', 'q' || i % 10, i % 5 from generate_series(1, 100000) i")
	require.NoError(t, err)
	explain("on a large table without statistics")
	_, err = tx.Exec(ctx, "analyze jobq.pending")
	require.NoError(t, err)
	explain("with statistics")
}

// Names that could leave their quotes are refused; what is left can be put
// into any statement.
func FuzzSchema(f *testing.F) {
	for _, name := range []string{"jobq", "My-Schema", `a"b`, "a'b", "pg_x", "", "ä"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		schema, err := db.NewSchema(name)
		if err != nil || name == "" {
			return
		}
		require.NotContains(t, name, `"`)
		require.NotContains(t, name, `'`)
		require.Equal(t, `select from "`+name+`".pending`, schema.SQL("select from jobq.pending"))
		require.LessOrEqual(t, len(db.Channel(name, db.TopicCancel)), 63)
	})
}
