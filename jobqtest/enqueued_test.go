package jobqtest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// Farewell is another kind of job.
type Farewell struct {
	Name  string `json:"name"`
	Times int    `json:"times"`
}

func (Farewell) Kind() string { return "farewell" }

func enqueue(t *testing.T, client *jobq.Client, args jobq.Args, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), args, options)
	require.NoError(t, err)
	return enqueued.ID
}

func named(name string) func(Greeting) bool { return func(g Greeting) bool { return g.Name == name } }

// A Recorder tells what was enqueued since it was made, in any way, with all that the
// enqueue has said, also when the job has run since.
func TestRecord(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := newDatabase(t)
	enqueue(t, database.Client, Greeting{"before"}, nil)
	enqueued := jobqtest.Record(t, database.Client)
	require.Empty(t, enqueued.Jobs())
	jobqtest.RequireNone[Greeting](enqueued, nil)

	plain := enqueue(t, database.Client, Greeting{"plain"}, nil)
	full := enqueue(t, database.Client, Farewell{"full", 3}, &jobq.EnqueueOptions{
		Queue: "mail", Priority: 7, Delay: time.Hour, MaxAttempts: 4, Timeout: time.Minute, UniqueKey: "once", PartitionKey: "a", Tags: []string{"a", "b"},
		Metadata: []byte(`{"by": "test"}`),
	})
	_, err := database.Pool.Exec(ctx, "select jobq.enqueue('greeting', jsonb_build_object('name', repeat('x', 10000)))")
	require.NoError(t, err)
	duplicate, err := database.Client.Enqueue(ctx, Farewell{"again", 1}, &jobq.EnqueueOptions{UniqueKey: "once"})
	require.NoError(t, err)
	require.True(t, duplicate.Duplicate)

	require.Len(t, enqueued.Jobs(), 3)
	require.Equal(t, plain, jobqtest.RequireOne(enqueued, jobqtest.Equal(Greeting{"plain"})).ID)
	require.Len(t, jobqtest.Enqueued[Greeting](enqueued, nil), 2)
	require.Len(t, jobqtest.Enqueued(enqueued, named("plain")), 1)
	require.Len(t, jobqtest.RequireOne(enqueued, func(g Greeting) bool { return g.Name != "plain" }).Args.Name, 10000)
	jobqtest.RequireNone(enqueued, named("before"))
	jobqtest.RequireNone(enqueued, jobqtest.Equal(Farewell{"full", 2}))

	job := jobqtest.RequireOne[Farewell](enqueued, nil)
	require.Equal(t, Farewell{"full", 3}, job.Args)
	require.WithinDuration(t, job.CreatedAt.Add(time.Hour), job.RunAt, time.Minute)
	require.JSONEq(t, `{"name": "full", "times": 3}`, string(job.Job.Args))
	require.JSONEq(t, `{"by": "test"}`, string(job.Metadata))
	require.Equal(t, jobq.Job{
		ID: full, State: jobq.StateScheduled, Queue: "mail", Kind: "farewell", Priority: 7, MaxAttempts: 4, Timeout: time.Minute, UniqueKey: "once", PartitionKey: "a",
		Tags: []string{"a", "b"}, Args: job.Job.Args, Metadata: job.Metadata, RunAt: job.RunAt, CreatedAt: job.CreatedAt,
	}, job.Job)

	counts := jobqtest.RunDue(t, database.Client, func(w *worker.Worker) error {
		return worker.Handle(w, func(context.Context, *worker.Job[Greeting]) error { return nil }, nil)
	}, nil)
	require.EqualValues(t, 3, counts.Completed)
	require.Equal(t, jobq.StateCompleted, jobqtest.RequireOne(enqueued, named("plain")).State)
}

// In a transaction that has not committed, what it has enqueued itself counts, also in a
// savepoint, and nothing else: neither what it had enqueued before the Recorder was made, nor what others
// enqueue and commit meanwhile.
func TestRecordTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	database := newDatabase(t)
	client := database.Client
	enqueue(t, client, Greeting{"committed before"}, nil)
	tx, err := database.Pool.Begin(ctx)
	require.NoError(t, err)
	in := func(tx pgx.Tx, name string) {
		t.Helper()
		_, err := client.EnqueueTx(ctx, tx, Greeting{name}, nil)
		require.NoError(t, err)
	}
	in(tx, "own, before")
	enqueued := jobqtest.RecordTx(t, client, tx)
	everybody := jobqtest.Record(t, client)
	require.Empty(t, enqueued.Jobs())

	enqueue(t, client, Greeting{"another's"}, nil)
	in(tx, "own")
	savepoint, err := tx.Begin(ctx)
	require.NoError(t, err)
	in(savepoint, "own, in a savepoint")
	jobqtest.RequireOne(enqueued, named("own, in a savepoint"))
	require.NoError(t, savepoint.Commit(ctx))
	undone, err := tx.Begin(ctx)
	require.NoError(t, err)
	in(undone, "undone")
	require.NoError(t, undone.Rollback(ctx))
	enqueue(t, client, Greeting{"another's, too"}, nil)

	var names []string
	for _, job := range jobqtest.Enqueued[Greeting](enqueued, nil) {
		names = append(names, job.Args.Name)
	}
	require.Equal(t, []string{"own", "own, in a savepoint"}, names)
	require.Len(t, everybody.Jobs(), 2, "what is not committed is nobody else's business")
	require.NoError(t, tx.Rollback(ctx))
	require.Len(t, everybody.Jobs(), 2)

	o := attempt(func(tb jobqtest.TB) { jobqtest.RecordTx(tb, client, tx) })
	require.Contains(t, o.fatal, "tx is closed")
}

// The numbers of transactions wrap around at 2^32: what a transaction has enqueued is still known.
// Method: a server whose next number is just below, and then just above.
func TestRecordTxAtWraparound(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	for low, want := range map[int64]int64{100: 4294967396, 4294967290: 4294967290} {
		var full int64
		err := database.Pool.QueryRow(context.Background(), "select "+strings.ReplaceAll(strings.ReplaceAll(
			jobqtest.FullNumberSQL, "x.next", "4294967300::bigint"), "x.low", "$1::bigint"), low).Scan(&full)
		require.NoError(t, err)
		require.Equal(t, want, full)
	}
}

// A failure says what was wanted, and lists what there was.
func TestRequireFails(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	var enqueued *jobqtest.Recorder
	try := func(test func()) string {
		o := attempt(func(tb jobqtest.TB) {
			if enqueued == nil {
				enqueued = jobqtest.Record(tb, database.Client)
			}
			*enqueued = *jobqtest.WithTB(enqueued, tb)
			test()
		})
		return o.fatal
	}
	require.Equal(t, "jobqtest: 0 jobs of kind greeting that match were enqueued, want 1\nnothing was enqueued",
		try(func() { jobqtest.RequireOne(enqueued, named("a")) }))

	first := enqueue(t, database.Client, Greeting{"a"}, nil)
	require.EqualValues(t, 1, first)
	enqueue(t, database.Client, Farewell{strings.Repeat("é", 300), 1}, &jobq.EnqueueOptions{Queue: "mail", Delay: time.Hour, UniqueKey: "once"})
	listed := "\n2 jobs were enqueued in all:\n" +
		`  1 greeting {"name": "a"} (queue default, available)` + "\n" +
		`  2 farewell {"name": "` + strings.Repeat("é", 190) + `… (queue mail, scheduled, unique key once)`
	require.Equal(t, "jobqtest: 0 jobs of kind greeting that match were enqueued, want 1"+listed, try(func() { jobqtest.RequireOne(enqueued, named("b")) }))
	require.Equal(t, "jobqtest: 1 jobs of kind farewell were enqueued, want none"+listed, try(func() { jobqtest.RequireNone[Farewell](enqueued, nil) }))

	many := make([]jobq.EnqueueParams, 30)
	for i := range many {
		many[i].Args = Greeting{"a"}
	}
	_, err := database.Client.EnqueueMany(context.Background(), many)
	require.NoError(t, err)
	failure := try(func() { jobqtest.RequireOne(enqueued, named("a")) })
	require.Contains(t, failure, "31 jobs of kind greeting that match were enqueued, want 1\n32 jobs were enqueued in all:")
	require.Contains(t, failure, "\n  and 12 more")

	require.Contains(t, try(func() { jobqtest.RequireOne[jobq.RawArgs](enqueued, nil) }), "jobq.RawArgs has no kind of its own: use Recorder.Jobs")
	enqueue(t, database.Client, jobq.RawArgs{Name: "greeting", JSON: []byte(`{"name": 7}`)}, nil)
	require.Contains(t, try(func() { jobqtest.Enqueued[Greeting](enqueued, nil) }), "args of job 33 do not decode into jobqtest_test.Greeting")
}

// A Recorder of a client with a Codec has plain args; one without fails, instead of matching empty args.
func TestRecordEncrypted(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	keys, err := keyring.New(keyring.Key{Name: "k1", Secret: make([]byte, 32)})
	require.NoError(t, err)
	client, err := jobq.NewClient(database.Pool, &jobq.Config{Schema: database.Client.Schema(), Codec: keys})
	require.NoError(t, err)
	enqueued := jobqtest.Record(t, client)
	o := attempt(func(tb jobqtest.TB) {
		blind := jobqtest.Record(tb, database.Client)
		enqueue(t, client, Greeting{"unread"}, nil)
		jobqtest.Enqueued[Greeting](blind, nil)
	})
	require.Contains(t, o.fatal, `are encrypted with key "k1"`)
	enqueue(t, client, Greeting{"secret"}, nil)
	require.Equal(t, `{"name":"secret"}`, string(jobqtest.RequireOne(enqueued, named("secret")).Job.Args))
}
