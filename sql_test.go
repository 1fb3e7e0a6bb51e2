package jobq_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// The SQL functions do what docs/sql.md says, called as a stranger would call
// them.
func TestSQLFunctions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	call := func(sql string) int64 {
		var id int64
		require.NoError(t, client.Pool().QueryRow(ctx, sql).Scan(&id), sql)
		return id
	}
	id := call(`select jobq.enqueue('hello', '{"a": 1}')`)
	require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, id))
	id = call(`select jobq.enqueue('hello', args => '{"a": 1}', queue => 'q', priority => 5, run_at => now() + interval '1 hour',
		max_attempts => 3, unique_key => 'u', timeout => '5 minutes', tags => array['x'], metadata => '{}',
		backoff_base => '1 minute', backoff_max => '1 hour')`)
	job, err := client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateScheduled, job.State)
	require.Equal(t, 5*time.Minute, job.Timeout)
	require.Equal(t, []string{"x"}, job.Tags)
	require.Equal(t, id, call(`select jobq.enqueue('hello', unique_key => 'u')`), "the holder's id comes back")

	id = call(`select jobq.enqueue('hello', null, null, null, null, null, null, null, null, null, null, null)`)
	job, err = client.Get(ctx, id)
	require.NoError(t, err)
	require.Equal(t, "default", job.Queue)
	require.JSONEq(t, `{}`, string(job.Args))

	rows, err := client.Pool().Query(ctx, `select id, duplicate from jobq.enqueue_many('[
		{"kind": "a", "args": {"n": 1}, "tags": ["t"]}, {"kind": "hello", "unique_key": "u"}, {"kind": "b", "priority": -1}]')`)
	require.NoError(t, err)
	var duplicates []bool
	for rows.Next() {
		var many int64
		var duplicate bool
		require.NoError(t, rows.Scan(&many, &duplicate))
		duplicates = append(duplicates, duplicate)
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []bool{false, true, false}, duplicates)

	id = call(`insert into jobq.pending (kind, args) values ('plain', '{"x": 1}') returning id`)
	var after string
	require.NoError(t, client.Pool().QueryRow(ctx, "select jobq.cancel($1)::text", id).Scan(&after))
	require.Equal(t, "cancelled", after)
	require.NoError(t, client.Pool().QueryRow(ctx, "select jobq.requeue($1)::text", id).Scan(&after))
	require.Equal(t, "available", after)
	var nothing *string
	require.NoError(t, client.Pool().QueryRow(ctx, "select jobq.cancel(123456)::text").Scan(&nothing))
	require.Nil(t, nothing)
	var deleted bool
	require.NoError(t, client.Pool().QueryRow(ctx, "select jobq.delete_job($1)", id).Scan(&deleted))
	require.True(t, deleted)
}

// Values out of range are refused by the SQL functions too, by name.
func TestSQLRefusals(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	for sql, want := range map[string]string{
		`select jobq.enqueue('k', priority => 40000)`:                         "priority must be -32768 to 32767",
		`select jobq.enqueue('k', max_attempts => 0)`:                         "max_attempts must be 1 to 32767",
		`select jobq.enqueue('')`:                                             "kind must be 1 to 128 characters",
		`select jobq.enqueue(null)`:                                           "kind",
		`select jobq.enqueue('k', queue => repeat('q', 129))`:                 "queue must be 1 to 128 characters",
		`select * from jobq.enqueue_many('{"kind": "k"}')`:                    "jobs must be a JSON array",
		`select * from jobq.enqueue_many('[{"kind": "k", "priority": 1e9}]')`: "priority must be",
		`select * from jobq.enqueue_many('[{"args": {}}]')`:                   "kind",
		`insert into jobq.pending (kind, args) values ('k', null)`:            "args must not be null",
	} {
		_, err := client.Pool().Exec(context.Background(), sql)
		require.ErrorContains(t, err, want, sql)
	}
}

// Large args are kept apart, are read back everywhere, and go with the job.
func TestLargeArgs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	large := jobtest.Greeting{Name: jobtest.LongText(1500)}
	enqueued, err := client.Enqueue(ctx, large, nil)
	require.NoError(t, err)
	payloads := func() (count int) {
		require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from jobq.payload").Scan(&count))
		return count
	}
	require.Equal(t, 1, payloads())
	for range 2 {
		job, err := client.Get(ctx, enqueued.ID)
		require.NoError(t, err)
		require.Contains(t, string(job.Args), large.Name)
		_, err = client.Cancel(ctx, enqueued.ID)
		require.NoError(t, err)
		require.NoError(t, jobtest.Requeue(client, enqueued.ID))
	}
	require.NoError(t, jobtest.Delete(client, enqueued.ID))
	require.Zero(t, payloads())
}

// Ids above 2^31 work everywhere.
func TestLargeIDs(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	_, err := client.Pool().Exec(ctx, "alter sequence jobq.job_id_seq restart 3000000000")
	require.NoError(t, err)
	_, err = client.Pool().Exec(ctx, "alter sequence jobq.position_seq restart 5000000000")
	require.NoError(t, err)
	id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "k"})
	require.EqualValues(t, 3000000000, id)
	_, err = client.Cancel(ctx, id)
	require.NoError(t, err)
	require.NoError(t, jobtest.Requeue(client, id))
	require.NoError(t, jobtest.Delete(client, id))
}
