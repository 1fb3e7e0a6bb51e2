package jobqsql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/jobqsql"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// drivers are those of database/sql that the package's documentation names.
var drivers = []string{"pgx", "postgres"}

// receipt is a kind with defaults.
type receipt struct {
	Order int    `json:"order"`
	Note  string `json:"note"`
}

func (receipt) Kind() string { return "receipt" }

func (receipt) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{Queue: "mail", Priority: 3, Timeout: 90 * time.Second}
}

// connect gives a test of each driver a database, and a client on it.
func connect(t *testing.T, config *jobq.Config, test func(t *testing.T, client *jobq.Client, database *sql.DB)) {
	t.Helper()
	for _, driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			client, err := jobq.NewClient(pgtest.Connect(t, url), config)
			require.NoError(t, err)
			database, err := sql.Open(driver, url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, database.Close()) })
			test(t, client, database)
		})
	}
}

// within runs the calls in a transaction that it commits.
func within(t *testing.T, database *sql.DB, calls func(ctx context.Context, tx *sql.Tx)) {
	t.Helper()
	ctx := context.Background()
	tx, err := database.BeginTx(ctx, nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	calls(ctx, tx)
	require.NoError(t, tx.Commit())
}

// A job with every option is stored as the same call with pgx stores it, and exists only after the commit.
func TestEnqueue(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		runAt := time.Date(2100, 2, 3, 4, 5, 6, 789000, time.FixedZone("", 3600))
		parent := jobtest.Enqueue(t, client, nil)
		options := []*jobq.EnqueueOptions{nil, {
			Queue: `a "b" \ {c}`, Priority: -7, RunAt: runAt, MaxAttempts: 9, Timeout: 1500 * time.Millisecond, BackoffBase: 36 * time.Hour,
			BackoffMax: 1000 * time.Hour, PartitionKey: "p'k", Tags: []string{`x "y"`, "", `\`, "NULL"}, Metadata: json.RawMessage(`{"a": "\"\\"}`),
		}, {UniqueKey: `k "1"`, UniqueFor: time.Hour, After: []int64{parent}, OnParentFailure: jobq.ParentFailureRun}, {UniqueBy: []string{"order"}, OnConflict: jobq.ConflictReplace}}
		for i, each := range options {
			args := receipt{Order: i, Note: "é ' \" \\ {}"}
			withPgx, err := client.Enqueue(context.Background(), args, each)
			require.NoError(t, err)
			want, err := client.Get(context.Background(), withPgx.ID)
			require.NoError(t, err)
			require.NoError(t, jobtest.Delete(client, withPgx.ID))
			var enqueued jobq.Enqueued
			within(t, database, func(ctx context.Context, tx *sql.Tx) {
				enqueued, err = jobqsql.Enqueue(ctx, client, tx, args, each)
				require.NoError(t, err)
				_, err = client.Get(ctx, enqueued.ID)
				require.ErrorIs(t, err, jobq.ErrNotFound)
				inTx, err := client.GetTx(ctx, jobqsql.Tx(tx), enqueued.ID)
				require.NoError(t, err)
				require.Equal(t, args.Kind(), inTx.Kind)
			})
			got, err := client.Get(context.Background(), enqueued.ID)
			require.NoError(t, err)
			want.ID, want.CreatedAt = got.ID, got.CreatedAt
			if each == nil || each.RunAt.IsZero() {
				want.RunAt = got.RunAt
			}
			require.Equal(t, want, got)
		}
		tx, err := database.Begin()
		require.NoError(t, err)
		lost, err := jobqsql.Enqueue(context.Background(), client, tx, receipt{}, nil)
		require.NoError(t, err)
		require.NoError(t, tx.Rollback())
		_, err = client.Get(context.Background(), lost.ID)
		require.ErrorIs(t, err, jobq.ErrNotFound)
	})
}

// Each of many jobs has its own options; the answers have their order.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		held := jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
		within(t, database, func(ctx context.Context, tx *sql.Tx) {
			enqueued, err := jobqsql.EnqueueMany(ctx, client, tx, []jobq.EnqueueParams{
				{Args: receipt{Order: 1}},
				{Args: jobtest.Greeting{}, EnqueueOptions: jobq.EnqueueOptions{UniqueKey: "u"}},
				{Args: receipt{Order: 2}, EnqueueOptions: jobq.EnqueueOptions{Delay: time.Hour, Tags: []string{"b"}, Metadata: json.RawMessage(`1`), Timeout: time.Minute}},
			})
			require.NoError(t, err)
			require.Equal(t, jobq.Enqueued{ID: held, Duplicate: true}, enqueued[1])
			first, err := client.GetTx(ctx, jobqsql.Tx(tx), enqueued[0].ID)
			require.NoError(t, err)
			require.Equal(t, []any{"mail", int16(3), 90 * time.Second, []string(nil)}, []any{first.Queue, first.Priority, first.Timeout, first.Tags})
			third, err := client.GetTx(ctx, jobqsql.Tx(tx), enqueued[2].ID)
			require.NoError(t, err)
			require.Equal(t, []any{jobq.StateScheduled, time.Minute, []string{"b"}}, []any{third.State, third.Timeout, third.Tags})
			require.Equal(t, time.Hour, third.RunAt.Sub(third.CreatedAt))
			none, err := jobqsql.EnqueueMany(ctx, client, tx, nil)
			require.NoError(t, err)
			require.Empty(t, none)
		})
	})
}

// A client with keys stores no plain args, and its middleware sees the jobs with their defaults.
func TestCodecAndMiddleware(t *testing.T) {
	t.Parallel()
	keys, err := keyring.New(keyring.Key{Name: "k", Secret: make([]byte, 32)})
	require.NoError(t, err)
	tag := func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
		for i := range jobs {
			jobs[i].Tags = []string{"from " + jobs[i].Queue}
		}
		return next(ctx)
	}
	connect(t, &jobq.Config{Codec: keys, Middleware: []jobq.EnqueueMiddleware{tag}}, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		within(t, database, func(ctx context.Context, tx *sql.Tx) {
			one, err := jobqsql.Enqueue(ctx, client, tx, receipt{Note: "secret"}, nil)
			require.NoError(t, err)
			many, err := jobqsql.EnqueueMany(ctx, client, tx, []jobq.EnqueueParams{{Args: receipt{Note: "secret"}}})
			require.NoError(t, err)
			for _, id := range []int64{one.ID, many[0].ID} {
				var stored []byte
				require.NoError(t, tx.QueryRowContext(ctx, "select args::text from jobq.job where id = $1", id).Scan(&stored))
				require.NotContains(t, string(stored), "secret")
				job, err := client.GetTx(ctx, jobqsql.Tx(tx), id)
				require.NoError(t, err)
				require.JSONEq(t, `{"order": 0, "note": "secret"}`, string(job.Args))
				require.Equal(t, []string{"from mail"}, job.Tags)
			}
		})
	})
}

// The client's other calls in a transaction, and the recorder of package jobqtest, take what Tx returns.
func TestTx(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		within(t, database, func(ctx context.Context, tx *sql.Tx) {
			recorder := jobqtest.RecordTx(t, client, jobqsql.Tx(tx))
			var graph jobq.Graph
			graph.Add("first", receipt{Order: 1}, &jobq.EnqueueOptions{UniqueKey: "u"})
			graph.Add("second", receipt{Order: 2}, nil, "first")
			jobs, err := client.EnqueueGraphTx(ctx, jobqsql.Tx(tx), &graph)
			require.NoError(t, err)
			require.Len(t, recorder.Jobs(), 2)
			second, err := client.GetTx(ctx, jobqsql.Tx(tx), jobs["second"].ID)
			require.NoError(t, err)
			require.Equal(t, jobq.StateWaiting, second.State)
			first, err := client.GetByUniqueKeyTx(ctx, jobqsql.Tx(tx), "receipt", "u")
			require.NoError(t, err)
			require.Equal(t, jobs["first"].ID, first.ID)
			state, err := client.CancelByUniqueKeyTx(ctx, jobqsql.Tx(tx), "receipt", "u")
			require.NoError(t, err)
			require.Equal(t, jobq.StateCancelled, state)
			_, err = client.CancelTx(ctx, jobqsql.Tx(tx), 1e9)
			require.ErrorIs(t, err, jobq.ErrNotFound)
			_, err = client.GetTx(ctx, jobqsql.Tx(tx), 1e9)
			require.ErrorIs(t, err, jobq.ErrNotFound)
			state, err = client.RequeueTx(ctx, jobqsql.Tx(tx), first.ID)
			require.NoError(t, err)
			require.Equal(t, jobq.StateAvailable, state)
			isFirst, err := client.EmitTx(ctx, jobqsql.Tx(tx), "paid", map[string]int{"order": 1})
			require.NoError(t, err)
			require.True(t, isFirst)
		})
	})
}

// A handler ends its job in its own transaction: after a rollback it has not ended.
func TestCompleteTx(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		w, err := worker.New(client, &worker.Config{Queues: map[string]worker.QueueConfig{"mail": {Slots: 1}}})
		require.NoError(t, err)
		require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[receipt]) error {
			for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
				tx, err := database.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				if err := errors.Join(job.CompleteTx(ctx, jobqsql.Tx(tx)), end(tx)); err != nil {
					return err
				}
			}
			return nil
		}, nil))
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		done, err := client.EnqueueAndWait(ctx, receipt{}, &jobq.EnqueueOptions{MaxAttempts: 1})
		stop()
		require.NoError(t, <-ended)
		require.NoError(t, err)
		require.Equal(t, jobq.StateCompleted, done.State)
	})
}

// Refusals of the database are jobq's errors with each driver, and the driver's own are found too.
func TestErrors(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		jobtest.Enqueue(t, client, &jobq.EnqueueOptions{UniqueKey: "u"})
		ctx := context.Background()
		for _, each := range []struct {
			options *jobq.EnqueueOptions
			want    error
			text    string
		}{
			{&jobq.EnqueueOptions{PartitionKey: strings.Repeat("x", 256)}, jobq.ErrInvalid, "partition_key must be 1 to 255 characters"},
			{&jobq.EnqueueOptions{UniqueKey: "u", OnConflict: jobq.ConflictFail}, jobq.ErrDuplicate, "u"},
			{&jobq.EnqueueOptions{After: []int64{1e9}}, jobq.ErrNotFound, "1000000000"},
		} {
			tx, err := database.Begin()
			require.NoError(t, err)
			_, err = jobqsql.Enqueue(ctx, client, tx, jobtest.Greeting{}, each.options)
			require.ErrorIs(t, err, each.want)
			require.ErrorContains(t, err, each.text)
			_, err = jobqsql.Enqueue(ctx, client, tx, jobtest.Greeting{}, nil) // the transaction has failed
			var refusal *pgconn.PgError
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, "25P02", refusal.Code)
			if _, isPq := database.Driver().(*pq.Driver); isPq {
				var own *pq.Error
				require.ErrorAs(t, err, &own)
			}
			require.NoError(t, tx.Rollback())
			_, err = jobqsql.Enqueue(ctx, client, tx, jobtest.Greeting{}, nil)
			require.ErrorIs(t, err, sql.ErrTxDone)
		}
	})
}

// wrappedDB stands for *sqlx.DB, and wrappedTx for *sqlx.Tx.
type (
	wrappedDB struct{ *sql.DB }
	wrappedTx struct{ *sql.Tx }
)

// What is nil is refused, and so is a pool; a connection with a transaction and what embeds a transaction is taken.
func TestConn(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		ctx := context.Background()
		for _, refused := range []jobqsql.Conn{nil, (*sql.Tx)(nil), (*sql.DB)(nil), database, wrappedDB{database}, &wrappedDB{database}} {
			_, err := jobqsql.Enqueue(ctx, client, refused, receipt{}, nil)
			require.ErrorIs(t, err, jobq.ErrInvalid)
			_, err = jobqsql.EnqueueMany(ctx, client, refused, []jobq.EnqueueParams{{Args: receipt{}}})
			require.ErrorIs(t, err, jobq.ErrInvalid)
			_, err = client.CancelTx(ctx, jobqsql.Tx(refused), 1)
			require.ErrorIs(t, err, jobq.ErrInvalid)
		}
		within(t, database, func(ctx context.Context, tx *sql.Tx) {
			_, err := jobqsql.Enqueue(ctx, nil, tx, receipt{}, nil)
			require.ErrorIs(t, err, jobq.ErrInvalid)
			_, err = jobqsql.Enqueue(ctx, client, tx, nil, nil)
			require.ErrorIs(t, err, jobq.ErrInvalid)
			_, err = jobqsql.Enqueue(ctx, client, &wrappedTx{tx}, receipt{}, nil)
			require.NoError(t, err)
		})
		conn, err := database.Conn(ctx)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "begin")
		require.NoError(t, err)
		_, err = jobqsql.Enqueue(ctx, client, conn, receipt{}, nil)
		require.NoError(t, err)
		_, err = conn.ExecContext(ctx, "rollback")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		page, err := client.List(ctx, jobq.Filter{})
		require.NoError(t, err)
		require.Len(t, page.Jobs, 1)
	})
}

// Each argument and each column of the statements for one transaction has a form that a driver can send: a statement with an
// argument of an unknown type is refused before it is sent.
func TestUnknownArgument(t *testing.T) {
	t.Parallel()
	connect(t, nil, func(t *testing.T, client *jobq.Client, database *sql.DB) {
		t.Helper()
		id := jobtest.Enqueue(t, client, nil)
		within(t, database, func(ctx context.Context, tx *sql.Tx) {
			_, err := jobqsql.Tx(tx).Exec(ctx, "select $1", struct{}{})
			require.ErrorContains(t, err, "argument 1 has the type struct {}, which jobqsql cannot send")
			var one, two int
			found, err := jobqsql.Tx(tx).Query(ctx, "select 1 union all select 2 order by 1")
			require.NoError(t, err)
			require.True(t, found.Next())
			require.NoError(t, found.Scan(&one))
			require.True(t, found.Next())
			require.NoError(t, found.Scan(&two))
			require.False(t, found.Next())
			require.NoError(t, found.Err())
			found.Close()
			require.Equal(t, 3, one+two)
			require.ErrorIs(t, jobqsql.Tx(tx).QueryRow(ctx, "select 1 where false").Scan(&one), pgx.ErrNoRows)
			tag, err := jobqsql.Tx(tx).Exec(ctx, "update jobq.pending p set priority = $1::integer where p.id = $2::bigint", int32(7), id)
			require.NoError(t, err)
			require.EqualValues(t, 1, tag.RowsAffected())
		})
	})
}
