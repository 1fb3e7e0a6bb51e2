package jobq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Every option of an enqueue is stored and comes back, whichever statement it
// goes through: a job with a unique key takes that of many jobs.
func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	client := jobtest.Client(t)
	runAt := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, key := range []string{"", "k"} {
		id := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{
			Queue: "mail", Priority: -3, RunAt: runAt, MaxAttempts: 7, Timeout: 90 * time.Second, UniqueKey: key,
			BackoffBase: 2 * time.Second, BackoffMax: time.Minute,
			Tags: []string{"a", `b "c"`}, Metadata: json.RawMessage(`{"trace":"x"}`),
		})
		job, err := client.Get(context.Background(), id)
		require.NoError(t, err)
		require.Equal(t, jobq.StateScheduled, job.State)
		require.Equal(t, "mail", job.Queue)
		require.Equal(t, "greeting", job.Kind)
		require.Equal(t, int16(-3), job.Priority)
		require.Equal(t, runAt, job.RunAt)
		require.Equal(t, 7, job.MaxAttempts)
		require.Equal(t, 90*time.Second, job.Timeout)
		require.Equal(t, key, job.UniqueKey)
		require.Equal(t, []string{"a", `b "c"`}, job.Tags)
		require.JSONEq(t, `{"trace":"x"}`, string(job.Metadata))
		require.JSONEq(t, `{"name":"world"}`, string(job.Args))
		var base, most float64 // seconds
		require.NoError(t, client.Pool().QueryRow(context.Background(), `select extract(epoch from backoff_base)::float8, extract(epoch from backoff_max)::float8
			from jobq.pending where id = $1`, id).Scan(&base, &most))
		require.Equal(t, []float64{2, 60}, []float64{base, most})
	}

	id := jobtest.Enqueue(t, client, nil)
	job, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateAvailable, job.State)
	require.Equal(t, "default", job.Queue)
	require.Equal(t, 25, job.MaxAttempts)
	require.Zero(t, job.Timeout)

	delayed := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{Delay: time.Hour})
	require.Equal(t, jobq.StateScheduled, jobtest.State(t, client, delayed))
}

// Many jobs in one call get their ids in the order given.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	jobs := make([]jobq.EnqueueParams, 10_000)
	for i := range jobs {
		jobs[i].Args = jobtest.Greeting{Name: fmt.Sprint(i)}
	}
	enqueued, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	require.Len(t, enqueued, len(jobs))
	for _, i := range []int{0, 1, 4999, 9999} {
		job, err := client.Get(ctx, enqueued[i].ID)
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"name":"%d"}`, i), string(job.Args))
	}
	_, err = client.EnqueueMany(ctx, make([]jobq.EnqueueParams, jobq.EnqueueManyMax+1))
	require.ErrorIs(t, err, jobq.ErrInvalid)
	none, err := client.EnqueueMany(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

// Of many jobs in one call each has its own options, and the others the defaults.
func TestEnqueueManyWithOptionsOfSome(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	parent := jobtest.Enqueue(t, client, nil)
	all := jobq.EnqueueOptions{
		Queue: "mail", Priority: 3, RunAt: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), MaxAttempts: 7, UniqueKey: "u", PartitionKey: "p",
		Timeout: time.Minute, BackoffBase: 2 * time.Second, BackoffMax: 3 * time.Second, Tags: []string{"t"}, Metadata: json.RawMessage(`{"m":1}`),
	}
	jobs := make([]jobq.EnqueueParams, 5)
	for i, options := range []jobq.EnqueueOptions{{}, all, {}, {Delay: time.Hour}, {After: []int64{parent}, OnParentFailure: jobq.ParentFailureRun}} {
		jobs[i] = jobq.EnqueueParams{Args: jobtest.Greeting{}, EnqueueOptions: options}
	}
	enqueued, err := client.EnqueueMany(ctx, jobs)
	require.NoError(t, err)
	stored := make([]string, len(jobs))
	for i := range jobs {
		require.NoError(t, client.Pool().QueryRow(ctx, `select concat_ws(' ', p.queue, p.priority, p.run_at > now(), p.run_at = '2100-01-01Z', p.max_attempts, p.unique_key,
				p.partition_key, p.timeout, p.backoff_base, p.backoff_max, p.tags, p.metadata, p.waits)
			from jobq.pending p where p.id = $1`, enqueued[i].ID).Scan(&stored[i]))
	}
	const plain = "default 0 f f 25 "
	require.Equal(t, []string{
		plain, `mail 3 t t 7 u p 00:01:00 00:00:02 00:00:03 {t} {"m": 1}`, plain, "default 0 t f 25 ", plain + " t",
	}, stored)
}

// A job enqueued in a transaction exists if that commits, whatever the
// transaction's search_path is, and in whatever schema jobq lives.
func TestEnqueueTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for _, schema := range []string{"jobq", "Other-Schema"} {
		pool := pgtest.Connect(t, pgtest.EmptyURL(t))
		require.NoError(t, pgtest.Migrate(ctx, pool.Config().ConnString(), schema))
		client, err := jobq.NewClient(pool, &jobq.Config{Schema: schema})
		require.NoError(t, err)
		require.NoError(t, client.Check(ctx))

		var kept, dropped jobq.Enqueued
		inTx := func(enqueued *jobq.Enqueued, end error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "set local search_path = nowhere"); err != nil {
					return err
				}
				var err error
				*enqueued, err = client.EnqueueTx(ctx, tx, jobtest.Greeting{Name: "tx"}, &jobq.EnqueueOptions{UniqueKey: fmt.Sprint(end)})
				return errors.Join(err, end)
			})
		}
		require.NoError(t, inTx(&kept, nil))
		errRollback := errors.New("roll back")
		require.ErrorIs(t, inTx(&dropped, errRollback), errRollback)
		require.Equal(t, jobq.StateAvailable, jobtest.State(t, client, kept.ID))
		_, err = client.Get(ctx, dropped.ID)
		require.ErrorIs(t, err, jobq.ErrNotFound)
		_, err = client.Cancel(ctx, kept.ID)
		require.NoError(t, err)
		require.NoError(t, jobtest.Requeue(client, kept.ID))
		require.NoError(t, jobtest.Delete(client, kept.ID))
	}
}

// Without tables, or with tables of another version, the error says what to do.
func TestCheck(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	empty, err := jobq.NewClient(pgtest.Connect(t, pgtest.EmptyURL(t)), &jobq.Config{Schema: "mine"})
	require.NoError(t, err)
	err = empty.Check(ctx)
	require.ErrorIs(t, err, jobq.ErrNotMigrated)
	require.ErrorContains(t, err, "jobq migrate up --schema mine")
	_, err = empty.Enqueue(ctx, jobtest.Greeting{}, nil)
	require.ErrorIs(t, err, jobq.ErrNotMigrated)

	client := jobtest.Client(t)
	require.NoError(t, client.Check(ctx))
	_, err = client.Pool().Exec(ctx, "delete from jobq.jobq_migration where version = (select max(version) from jobq.jobq_migration)")
	require.NoError(t, err)
	require.ErrorIs(t, client.Check(ctx), jobq.ErrNotMigrated)
	_, err = client.Pool().Exec(ctx, "insert into jobq.jobq_migration (version, compatible_from) values (1000, 1000)")
	require.NoError(t, err)
	require.ErrorIs(t, client.Check(ctx), jobq.ErrNewerSchema)

	_, err = jobq.NewClient(client.Pool(), &jobq.Config{Schema: `a"b`})
	require.ErrorContains(t, err, "schema name")
	_, err = jobq.NewClient(nil, nil)
	require.Error(t, err)
}

// Pages walk over all states, newest first, without gaps or repeats, and
// filters choose.
func TestList(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	var want []int64
	for i := range 25 {
		options := &jobq.EnqueueOptions{Queue: []string{"a", "b"}[i%2], Tags: []string{fmt.Sprint("t", i%5)}}
		if i%3 == 0 {
			options.Delay = time.Hour
		}
		want = append([]int64{jobtest.Enqueue(t, client, options)}, want...)
		if i%4 == 0 {
			_, err := client.Cancel(ctx, want[0])
			require.NoError(t, err)
		}
	}
	var got []int64
	filter := jobq.Filter{Limit: 7}
	for {
		page, err := client.List(ctx, filter)
		require.NoError(t, err)
		for _, job := range page.Jobs {
			got = append(got, job.ID)
		}
		if page.Next == 0 {
			break
		}
		filter.Before = page.Next
	}
	require.Equal(t, want, got)

	count := func(filter jobq.Filter) int {
		page, err := client.List(ctx, filter)
		require.NoError(t, err)
		return len(page.Jobs)
	}
	require.Equal(t, 12, count(jobq.Filter{Queue: "b"}))
	require.Equal(t, 5, count(jobq.Filter{Tag: "t3"}))
	require.Equal(t, 7, count(jobq.Filter{States: []jobq.State{jobq.StateCancelled}}))
	require.Equal(t, 0, count(jobq.Filter{Kind: "other"}))
	_, err := client.List(ctx, jobq.Filter{Limit: 1001})
	require.ErrorIs(t, err, jobq.ErrInvalid)
}

// A database that answers and cannot is not called away: the text says why.
func TestReadOnlyIsNamed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	config := jobtest.Client(t).Pool().Config()
	config.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	_, err = client.Enqueue(ctx, jobq.RawArgs{Name: "a"}, nil)
	require.ErrorIs(t, err, jobq.ErrUnavailable)
	require.ErrorContains(t, err, "enqueue: the database is read-only here: ")
	require.NotContains(t, err.Error(), "not available")
}
