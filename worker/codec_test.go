package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

func newKeyring(t *testing.T, names ...string) *keyring.Keyring {
	t.Helper()
	keys := make([]keyring.Key, len(names))
	for i, name := range names { // a secret that each test knows by its name
		keys[i] = keyring.Key{Name: name, Secret: []byte((name + strings.Repeat("-", 32))[:32])}
	}
	ring, err := keyring.New(keys...)
	require.NoError(t, err)
	return ring
}

// clientWith is a client on a database that other clients use as well.
func clientWith(t *testing.T, pool *pgxpool.Pool, codec jobq.Codec) *jobq.Client {
	t.Helper()
	client, err := jobq.NewClient(pool, &jobq.Config{Codec: codec})
	require.NoError(t, err)
	return client
}

// column is what is stored of a job.
func column(t *testing.T, pool *pgxpool.Pool, name string, id int64) (stored json.RawMessage) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), "select "+name+" from jobq.job where id = $1", id).Scan(&stored))
	return stored
}

func requireEncrypted(t *testing.T, key string, stored json.RawMessage) {
	t.Helper()
	name, encrypted := jobq.EncryptedWith(stored)
	require.True(t, encrypted, string(stored))
	require.Equal(t, key, name)
}

// A handler sees plain values, and the database none: whichever way a job was added, and also
// one that has completed in its handler's transaction. Args from SQL, which nobody has encrypted, work beside.
func TestCodec(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, plain := clientWith(t, pool, newKeyring(t, "k2", "k1")), clientWith(t, pool, nil)
	ctx := context.Background()
	ids := []int64{enqueue(t, client, 1, nil), enqueue(t, client, 2, &jobq.EnqueueOptions{UniqueKey: "u"})}
	many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: task{3}}, {Args: task{4}}})
	require.NoError(t, err)
	ids = append(ids, many[0].ID, many[1].ID, enqueue(t, clientWith(t, pool, newKeyring(t, "k1")), 5, nil))
	for i, key := range []string{"k2", "k2", "k2", "k2", "k1"} {
		requireEncrypted(t, key, column(t, pool, "args", ids[i]))
	}
	var fromSQL int64
	require.NoError(t, pool.QueryRow(ctx, `select jobq.enqueue('task', '{"n": 6}')`).Scan(&fromSQL))
	ids = append(ids, fromSQL)

	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		var saved struct{ At int }
		if job.Attempt() == 1 {
			if err := job.SaveCheckpoint(ctx, map[string]int{"at": job.Args.N * 100}); err != nil {
				return err
			}
			return worker.Retry(0, errors.New("once more"))
		}
		if found, err := job.Checkpoint(&saved); err != nil || !found {
			return worker.Discard(errors.New("no checkpoint"))
		}
		if err := job.SetResult(map[string]int{"sum": job.Args.N + saved.At}); err != nil {
			return err
		}
		if job.Args.N == 4 {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return job.CompleteTx(ctx, tx) })
		}
		return nil
	})
	for i, id := range ids {
		awaitState(t, plain, id, jobq.StateCompleted)
		requireEncrypted(t, "k2", column(t, pool, "checkpoint", id))
		requireEncrypted(t, "k2", column(t, pool, "result", id))
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		require.JSONEq(t, string(jobtest.JSON(t, task{i + 1})), string(job.Args))
		require.JSONEq(t, string(jobtest.JSON(t, map[string]int{"at": (i + 1) * 100})), string(job.Checkpoint))
		require.JSONEq(t, string(jobtest.JSON(t, map[string]int{"sum": (i + 1) * 101})), string(job.Result))
		stored, err := plain.Get(ctx, id)
		require.NoError(t, err)
		requireEncrypted(t, "k2", stored.Result)
	}
}

// saveOneCheckpoint makes a job that waits and has a checkpoint.
func saveOneCheckpoint(t *testing.T, client *jobq.Client) {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler), Queues: map[string]worker.QueueConfig{"first": {}}})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[task]) error {
		if err := job.SaveCheckpoint(ctx, map[string]int{"at": 1}); err != nil {
			return err
		}
		return worker.Snooze(time.Hour)
	}, nil))
	r := run(t, w)
	awaitState(t, client, enqueue(t, client, 9, &jobq.EnqueueOptions{Queue: "first"}), jobq.StateScheduled)
	require.NoError(t, r.drain())
}

// What is too large when it is encrypted is refused with an error that says so: it may
// have had the right size before.
func TestCodecLimits(t *testing.T) {
	t.Parallel()
	client := clientWith(t, pgtest.Pool(t), newKeyring(t, "k1"))
	type large struct {
		task
		Text string
	}
	text := strings.Repeat("x", 900<<10)
	for _, options := range []*jobq.EnqueueOptions{nil, {UniqueKey: "u"}} {
		_, err := client.Enqueue(context.Background(), large{Text: text}, options)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "args must be at most 1048576 bytes as stored")
		require.ErrorContains(t, err, "encrypted args are a third longer")
	}
	told := make(chan error, 2)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		told <- job.SetResult(text)
		told <- job.SaveCheckpoint(ctx, text)
		return nil
	})
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	for _, field := range []string{"result", "checkpoint"} {
		err := receive(t, told, field)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, field+" must be at most 1048576 bytes as stored")
	}
}

// panics is a codec that panics on values that are encoded.
type panics struct{ broken }

// A codec that panics, or returns what is not JSON, uses no attempt of the job.
func TestCodecMisbehaves(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	for args, want := range map[string]string{
		`{"by": "encoded"}`: "args cannot be decoded: panic: no key server", `{"by": "nobody"}`: "args cannot be decoded: the codec has returned what is not JSON",
	} {
		id := enqueueRaw(t, plain, "task", args, &jobq.EnqueueOptions{MaxAttempts: 1})
		r := start(t, clientWith(t, pool, panics{}), nil, func(context.Context, *worker.Job[task]) error { return nil })
		job := awaitState(t, plain, id, jobq.StateScheduled)
		require.Zero(t, job.Attempts)
		require.Contains(t, job.LastError, want)
		require.NoError(t, r.drain())
	}
}

// Errors are stored as plain text: that encrypted args or a checkpoint do not fit the handler's
// types is told without any of their values. Of plain ones the error has all.
func TestMisfitsAreNotQuoted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain, encrypting := clientWith(t, pool, nil), clientWith(t, pool, newKeyring(t, "k1"))
	type dated struct {
		task
		At time.Time
	}
	w, err := worker.New(encrypting, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(ctx context.Context, job *worker.Job[dated]) error {
		if err := job.SaveCheckpoint(ctx, "secret 4711"); err != nil {
			return err
		}
		_, noInt := job.Checkpoint(new(int))
		_, noTime := job.Checkpoint(new(time.Time))
		return errors.Join(noInt, noTime)
	}, nil))
	run(t, w)
	for _, test := range []struct {
		client   *jobq.Client
		args     string
		says     []string
		saysNone []string
	}{
		{encrypting, `{"At": "secret 4711"}`, []string{"decode args: it does not fit worker_test.dated"}, []string{"4711", "secret"}},
		{encrypting, `{"n": 4711.5}`, []string{"n must be int"}, []string{"4711"}},
		{plain, `{"At": "not secret"}`, []string{"not secret"}, nil},
		{plain, `{}`, []string{"it does not fit *int"}, []string{"4711", "secret"}},
		{encrypting, `{}`, []string{"it does not fit *int", "it does not fit *time.Time"}, []string{"4711", "secret"}},
	} {
		id := enqueueRaw(t, test.client, "task", test.args, &jobq.EnqueueOptions{MaxAttempts: 1})
		job := awaitState(t, plain, id, jobq.StateFailed)
		for _, text := range test.says {
			require.Contains(t, job.LastError, text)
		}
		for _, text := range test.saysNone {
			require.NotContains(t, job.LastError, text)
		}
	}
}

// What PostgreSQL cannot store is refused when it is encrypted as well, where PostgreSQL would not see it.
func TestEncryptedNUL(t *testing.T) {
	t.Parallel()
	client := clientWith(t, pgtest.Pool(t), newKeyring(t, "k1"))
	_, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: "task", JSON: json.RawMessage(`"\u0000"`)}, nil)
	require.ErrorIs(t, err, jobq.ErrInvalid)
	told := make(chan error, 2)
	start(t, client, nil, func(ctx context.Context, job *worker.Job[task]) error {
		told <- job.SetResult("\x00")
		told <- job.SaveCheckpoint(ctx, "\x00")
		return nil
	})
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	for range 2 {
		err := receive(t, told, "an error")
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "NUL")
	}
}

// broken is a codec that cannot encode, and has nothing to decode.
type broken struct{ stored string }

func (b broken) Encode(context.Context, jobq.CodecValue, json.RawMessage) (json.RawMessage, error) {
	if b.stored != "" {
		return json.RawMessage(b.stored), nil
	}
	return nil, errors.New("no key server")
}

// A codec that fails adds no job, and what it returns must be JSON. Nor is a stored value
// taken for a plain one: a handler would decrypt it for whoever has read it in the database.
func TestCodecFails(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for want, codec := range map[string]jobq.Codec{"no key server": broken{}, "not JSON": broken{"{"}} {
		client := clientWith(t, pool, codec)
		_, err := client.Enqueue(context.Background(), task{1}, nil)
		require.ErrorContains(t, err, want)
		_, err = client.EnqueueMany(context.Background(), []jobq.EnqueueParams{{Args: task{1}}})
		require.ErrorContains(t, err, "jobs[0]: encode args")
	}
	for _, args := range []string{`{"$jobq": "enc", "key": "k1", "v": "AAAA"}`, `{"$jobq": "enc"}`} {
		_, err := clientWith(t, pool, newKeyring(t, "k1")).Enqueue(context.Background(), jobq.RawArgs{Name: "task", JSON: json.RawMessage(args)}, nil)
		require.ErrorIs(t, err, jobq.ErrInvalid)
		require.ErrorContains(t, err, "encode args: it is encrypted already")
	}
	var jobs int
	require.NoError(t, pool.QueryRow(context.Background(), "select count(*) from jobq.job").Scan(&jobs))
	require.Zero(t, jobs)
}

func (panics) Decode(_ context.Context, _ jobq.CodecValue, stored json.RawMessage) (json.RawMessage, error) {
	if strings.Contains(string(stored), "encoded") {
		panic("no key server")
	}
	return json.RawMessage(`{"n": `), nil
}

func (broken) Decode(_ context.Context, _ jobq.CodecValue, stored json.RawMessage) (json.RawMessage, error) {
	return stored, nil
}
