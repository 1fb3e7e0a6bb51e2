package operator_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// What brings a few jobs with unique keys back costs the same however many jobs
// and keys there are, with statistics and without. Method: count the pages that
// the whole call looks at, among 100,000 jobs that wait and as many that have ended.
func TestActCost(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	conn, err := client.Pool().Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	exec := func(sql string, args ...any) {
		_, err := conn.Exec(ctx, sql, args...)
		require.NoError(t, err, sql)
	}
	ids := make([]int64, 20)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	exec("set synchronous_commit = off")
	exec("insert into jobq.pending (kind, unique_key) select 'k', i::text from generate_series(1, $1::integer) i", len(ids))
	exec("alter sequence jobq.job_id_seq restart 1000000")
	exec("set session_replication_role = replica") // no triggers
	exec("insert into jobq.pending (kind, unique_key) select 'k', i::text from generate_series(1001, 101000) i")
	exec("insert into jobq.unique_key (kind, key, job_id) select p.kind, p.unique_key, p.id from jobq.pending p where p.id >= 1000000")
	err = pgtest.InsertFinished(ctx, conn, 100000, pgtest.Columns{
		"id": "2000000 + i", "state": "'cancelled'", "kind": "'k'", "unique_key": "'ended' || (2000000 + i)",
	})
	require.NoError(t, err)
	exec("set session_replication_role = origin")
	pages := func(sql string, args ...any) int {
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		var text []byte
		require.NoError(t, conn.QueryRow(ctx, "explain (analyze, buffers, format json) "+sql, append([]any{pgx.QueryExecModeExec}, args...)...).Scan(&text))
		require.NoError(t, json.Unmarshal(text, &plans))
		return plans[0].Plan.Hit + plans[0].Plan.Read
	}
	audit := int64(0)
	act := func(action jobq.Action) int {
		audit++
		return pages("select * from jobq.act('me', $1, $2, null, null, null, null, null)", string(action), ids)
	}
	undo := func() int {
		audit++
		return pages("select * from jobq.undo('me', $1)", audit-1)
	}
	// 20 jobs, each looked up in a few tables and partitions, moved and audited;
	// the history of 100,000 alone has 1,600 pages, and the keys and jobs more.
	const most = 6000
	for _, statistics := range []string{"without", "with"} {
		for range 7 { // beyond the fifth call PostgreSQL may plan for any parameters
			require.Less(t, act(jobq.ActionCancel), most, statistics)
			require.Less(t, undo(), most, statistics)
			require.Less(t, act(jobq.ActionDelete), most, statistics)
			require.Less(t, undo(), most, statistics)
			require.Less(t, act(jobq.ActionCancel), most, statistics)
			require.Less(t, act(jobq.ActionRequeue), most, statistics)
		}
		exec("analyze")
	}
	jobtest.RequireKeysRight(t, client.Pool())
}

// A job with more attempts than one call deletes goes all the same, and its
// latest 100 come back with an undo.
func TestDeleteWithManyAttempts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	id := jobtest.Enqueue(t, client, nil)
	_, err := client.Pool().Exec(ctx, `insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id)
		select $1, now(), now(), i, 'snoozed', 1, 'w' from generate_series(1, 10500) i`, id)
	require.NoError(t, err)
	tokens := func() (attempts []int) {
		var count, lowest, highest int
		require.NoError(t, client.Pool().QueryRow(ctx, "select count(*), coalesce(min(lease_token), 0), coalesce(max(lease_token), 0) from jobq.attempt where job_id = $1", id).
			Scan(&count, &lowest, &highest))
		return []int{count, lowest, highest}
	}
	acted, err := operator.New(client, "test").Act(ctx, jobq.ActionDelete, operator.Target{ID: id})
	require.NoError(t, err)
	require.Equal(t, []int{500, 1, 500}, tokens(), "retention removes them")
	_, err = operator.New(client, "test").Undo(ctx, acted.AuditID)
	require.NoError(t, err)
	require.Equal(t, []int{600, 1, 10500}, tokens())
	require.NoError(t, jobtest.Delete(client, id))
	require.Equal(t, []int{0, 0, 0}, tokens())
}
