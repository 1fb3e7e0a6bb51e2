package tests

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// As SQL functions in FROM, run_of and pending_of cost nothing: the planner puts their columns into the statement, with
// one plan for all arguments as with one for these. A volatile argument, or one with a subquery, would make each row of
// a batch a call of its own.
func TestMovesAreInlined(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, s := range []struct {
		name, sql, args, shows string
	}{
		{"claim", db.JobClaim, "'{-32769}', '{0}', '{32767}', 'default', '{k}', false, true, 100, '1 hour', 10, 10, 'a', false", `NULLIF\(`},
		{"lane_take", db.LaneTake, "'1 hour', 10, 'a', 'default'", `NULLIF\(`},
		{"end", db.RunEnd, "'{1}', '{1}', '{now}', '{t}', '{failed}', '{e}', array['']::text[], array[null]::interval[], '{f}', '{0}', '{f}', '{null}', '{null}', 'a'", "'available'::jobq"},
		{"reap", db.LeaseReap, "null, '{}', null, 100, '{}', 'test'", "'available'::jobq"},
	} {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			tx := q.begin(pgx.ReadCommitted, db.HotSettings)
			_, err := tx.Exec(ctx, fmt.Sprintf("prepare move_%s as %s", s.name, q.schema.SQL(s.sql)))
			require.NoError(t, err)
			_, err = tx.Exec(ctx, "select set_config('plan_cache_mode', $1, true)", mode)
			require.NoError(t, err)
			rows, err := tx.Query(ctx, fmt.Sprintf("explain (verbose) execute move_%s(%s)", s.name, s.args))
			require.NoError(t, err, s.name)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err, s.name)
			plan := strings.Join(lines, "\n")
			require.Regexp(t, s.shows, plan, "%s, %s: what the function computes", s.name, mode)
			require.NotRegexp(t, `jobq\.(run_of|pending_of|next_state|error_kept)\(`, plan, "%s, %s", s.name, mode)
			_, err = tx.Exec(ctx, "deallocate move_"+s.name)
			require.NoError(t, err)
			require.NoError(t, tx.Rollback(ctx))
		}
	}
}

// A later migration may add a column to jobs. Workers of before, whose statements were prepared before, carry it from
// table to table: no statement names the columns.
func TestNewColumnIsCarriedByOlderWorkers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	for _, table := range []string{"pending", "run"} { // a column that is gone is in the table's catalog for ever
		q.exec("alter table jobq." + table + " add column gone text")
		q.exec("alter table jobq." + table + " drop column gone")
	}
	q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
	// A connection on which the statements were prepared before the column came.
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	exchange := func(e db.Exchange) db.Exchanged {
		answer, err := q.schema.Exchange(ctx, conn, e)
		require.NoError(t, err)
		return answer
	}
	first := exchange(plain("a", 1)).Claimed
	require.Len(t, first, 1)
	exchange(db.Exchange{Owner: "a", Endings: []db.Ending{failedOf(first[0])}})

	q.exec("alter table jobq.pending add column mark text")
	q.exec("alter table jobq.run add column mark text")
	for function, row := range map[string]string{"run_of": "job", "pending_of": "run"} {
		var definition string
		require.NoError(t, q.pool.QueryRow(ctx, "select pg_get_functiondef($1::regproc)", "jobq."+function).Scan(&definition))
		changed := regexp.MustCompile(`;\s*END\s*$`).ReplaceAllString(definition, fmt.Sprintf(", (%s).mark; END", row))
		require.NotEqual(t, definition, changed)
		q.exec(changed)
	}
	q.exec("update jobq.pending set mark = 'm' || id")

	second := exchange(plain("a", 2)).Claimed
	require.Len(t, second, 2)
	require.Equal(t, 2, q.number("select count(*) from jobq.run where mark = 'm' || id"), "claimed")
	exchange(db.Exchange{Owner: "a", Endings: []db.Ending{failedOf(second[0])}})
	require.Equal(t, 1, q.number("select count(*) from jobq.pending where mark = 'm' || id and id = $1", second[0].ID), "failed, and waits again")
	q.reap()
	require.Equal(t, 3, q.number("select count(*) from jobq.pending where mark = 'm' || id"), "reaped")
}

func failedOf(job db.JobClaimRow) db.Ending {
	return db.Ending{Slot: at(job), Outcome: "failed", Error: "e", Started: true, Ran: time.Second}
}

// Every statement that ends runs asks next_state: the table is of its comment.
func TestNextState(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	last, more := "24, 25", "0, 25"
	for _, c := range []struct{ args, state string }{
		{"'completed', " + last + ", true, true, null", "completed"},
		{"'cancelled', " + last + ", true, true, null", "cancelled"},
		{"'failed', " + more + ", false, false, null", "scheduled"},
		{"'failed', " + more + ", false, false, '0'", "available"},
		{"'failed', " + more + ", false, false, '-1 s'", "available"},
		{"'failed', " + more + ", false, false, '1 s'", "scheduled"},
		{"'failed', " + more + ", true, false, '0'", "failed"},
		{"'failed', " + last + ", false, false, '0'", "failed"},
		{"'failed', " + last + ", false, true, '0'", "failed"},
		{"'failed', " + more + ", false, true, '0'", "cancelled"},
		{"'timed_out', " + last + ", false, false, '0'", "failed"},
		{"'lost', " + last + ", false, false, '0'", "failed"},
		{"'lost', " + last + ", false, true, '0'", "cancelled"},
		{"'lost', " + more + ", false, false, null", "scheduled"},
		{"'lost', " + more + ", false, false, '0'", "available"},
		{"'released', " + last + ", true, false, null", "available"},
		{"'released', " + last + ", false, true, null", "cancelled"},
		{"'snoozed', " + last + ", false, false, '1 h'", "scheduled"},
		{"'snoozed', " + last + ", false, false, '0'", "available"},
		{"'snoozed', " + last + ", false, false, '0', true", "waiting"},
		{"'snoozed', " + last + ", false, true, '0', true", "cancelled"},
		{"'unreadable', " + last + ", false, false, '1 h'", "scheduled"},
	} {
		require.Equal(t, 1, q.number(fmt.Sprintf("select count(*) where jobq.next_state(%s) = '%s'", c.args, c.state)), "%s: %s", c.args, c.state)
	}
}
