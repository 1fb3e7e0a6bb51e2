package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// logged counts lines of a log.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *logged) count(text string) (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			count++
		}
	}
	return count
}

// A job that its worker cannot read uses no attempt and is not lost: it waits, says why, and runs once it can be read. One
// whose value is damaged for sure fails at once, and says why. Jobs beside it run as ever. Method: workers without keys,
// without the key, and with a job whose stored values somebody has changed.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		codec  *keyring.Keyring // the worker's
		change string           // what somebody does to the rows
		want   string
		fails  bool // those that were changed fail at once
	}{
		"no keys":                    {nil, "", `args cannot be decoded: encrypted with key "k1": there are no keys here`, false},
		"unknown key":                {newKeyring(t, "k9", "k8"), "", `encrypted with key "k1": it is none of the keys here, which are k9, k8`, false},
		"changed":                    {newKeyring(t, "k1"), `update jobq.pending set args = jsonb_set(args, '{v}', to_jsonb(reverse(left(args ->> 'v', 40)) || substr(args ->> 'v', 41))) where kind = 'task'`, `encrypted with key "k1": the value was changed`, false},
		"cut off":                    {newKeyring(t, "k1"), `update jobq.pending set args = args - 'v' where kind = 'task'`, `args cannot be decoded: encrypted with key "k1": the value is too short`, true},
		"args of another kind":       {newKeyring(t, "k1"), `update jobq.pending set args = (select p.args from jobq.pending p where p.kind = 'other') where kind = 'task'`, "belongs to another job", false},
		"the args as its checkpoint": {newKeyring(t, "k1"), `update jobq.pending set checkpoint = args where kind = 'task'`, "checkpoint cannot be decoded", true},
		"checkpoint of another job":  {newKeyring(t, "k1"), `update jobq.pending set checkpoint = (select p.checkpoint from jobq.pending p where p.kind = 'task' and p.checkpoint is not null)`, "checkpoint cannot be decoded", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, pool := context.Background(), pgtest.Pool(t)
			producer, plain := clientWith(t, pool, newKeyring(t, "k1")), clientWith(t, pool, nil)
			options := &jobq.EnqueueOptions{MaxAttempts: 1}
			ids := []int64{enqueue(t, producer, 1, options), enqueue(t, producer, 2, options)}
			if strings.Contains(test.change, "'other'") {
				_, err := producer.Enqueue(ctx, jobq.RawArgs{Name: "other", JSON: json.RawMessage(`{"n":5}`)}, nil)
				require.NoError(t, err)
			}
			if strings.Contains(test.change, "checkpoint is not null") {
				saveOneCheckpoint(t, producer)
			}
			args := column(t, pool, "args", ids[1])
			if test.change != "" {
				_, err := pool.Exec(ctx, test.change)
				require.NoError(t, err)
			}
			var beside int64
			require.NoError(t, pool.QueryRow(ctx, `select jobq.enqueue('beside', '{"n": 3}')`).Scan(&beside))

			var codec jobq.Codec
			if test.codec != nil {
				codec = test.codec
			}
			log := new(logged)
			w, err := worker.New(clientWith(t, pool, codec), &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
			require.NoError(t, err)
			called := make(chan int, 10)
			require.NoError(t, worker.Handle(w, func(_ context.Context, job *worker.Job[task]) error {
				called <- job.Args.N
				return nil
			}, nil))
			require.NoError(t, worker.HandleRaw(w, "beside", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
			blind := run(t, w)
			awaitState(t, plain, beside, jobq.StateCompleted)
			for _, id := range ids {
				if test.fails {
					require.Contains(t, awaitState(t, plain, id, jobq.StateFailed).LastError, test.want)
					continue
				}
				job := awaitState(t, plain, id, jobq.StateScheduled)
				require.Zero(t, job.Attempts)
				require.Contains(t, job.LastError, test.want)
				runs := attempts(t, plain, id)
				require.Len(t, runs, 1)
				require.Greater(t, job.RunAt.Sub(runs[0].FinishedAt), 29*time.Second, "it is not tried again at once")
				require.Equal(t, jobq.OutcomeUnreadable, runs[0].Outcome)
				require.Contains(t, runs[0].Error, test.want)
			}
			require.NoError(t, blind.drain())
			require.Empty(t, called, "no handler was called")
			if test.fails {
				require.EqualValues(t, 2, blind.Counts().Failed)
				return
			}
			require.EqualValues(t, 2, blind.Counts().Unreadable)
			require.Zero(t, blind.Counts().Failed)
			require.Equal(t, 1, log.count("level=WARN msg=\"job cannot be decoded"), "of a key once")
			if test.change != "" {
				return
			}

			require.Equal(t, string(args), string(column(t, pool, "args", ids[1])), "nothing was rewritten")
			ran := make(chan int, 2)
			start(t, producer, nil, func(_ context.Context, job *worker.Job[task]) error {
				ran <- job.Args.N
				return nil
			})
			for _, id := range ids {
				require.NoError(t, jobtest.Requeue(plain, id))
				require.Zero(t, awaitState(t, plain, id, jobq.StateCompleted).Attempts)
			}
			require.ElementsMatch(t, []int{1, 2}, []int{receive(t, ran, "a job"), receive(t, ran, "the other")})
		})
	}
}

// A worker without the key leaves the jobs to one that has it: it gives the delay of an unreadable
// job to five of them, and then claims none of the kind, while it goes on with others. Method: the slots of the worker with
// the key are full at first.
func TestBlindWorkerLeavesJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	producer, plain := clientWith(t, pool, newKeyring(t, "k1")), clientWith(t, pool, nil)
	full := make(chan struct{})
	start(t, producer, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {NoClaimAhead: true}}}, func(context.Context, *worker.Job[task]) error {
		<-full
		return nil
	})
	for i := range worker.DefaultSlots {
		awaitState(t, plain, enqueue(t, producer, i, nil), jobq.StateRunning)
	}
	for i := range 60 {
		enqueue(t, producer, i, nil)
	}
	w, err := worker.New(plain, &worker.Config{
		NoJanitor: true,
		Logger:    slog.New(slog.DiscardHandler), Queues: map[string]worker.QueueConfig{"default": {Slots: 8}}, PollInterval: 10 * time.Millisecond,
	})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	require.NoError(t, worker.HandleRaw(w, "beside", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	blind := run(t, w)
	inState := func(state jobq.State) (count int) {
		require.NoError(t, pool.QueryRow(context.Background(), "select count(*) from jobq.job where kind = 'task' and state::text = $1", string(state)).Scan(&count))
		return count
	}
	require.Eventually(t, func() bool {
		return inState(jobq.StateScheduled) >= 5 && inState(jobq.StateRunning) == worker.DefaultSlots
	}, patience, 2*time.Millisecond)
	for range 20 { // each is claimed, and with it the encrypted ones would be
		awaitState(t, plain, enqueueRaw(t, plain, "beside", "{}", nil), jobq.StateCompleted)
	}
	// On a machine that stalls for as long as a pause, a sixth job tries, and a seventh.
	require.Eventually(t, func() bool { return inState(jobq.StateAvailable) >= 53 }, patience, 2*time.Millisecond, "those that were in hand are back")
	close(full)
	require.Eventually(t, func() bool {
		return inState(jobq.StateCompleted) >= 53+worker.DefaultSlots && inState(jobq.StateAvailable) == 0 && inState(jobq.StateRunning) == 0
	},
		patience, 2*time.Millisecond)
	require.NoError(t, blind.drain())
	require.GreaterOrEqual(t, blind.Counts().Unreadable, int64(5))
	require.LessOrEqual(t, blind.Counts().Unreadable, int64(7))
}

// A worker that ends when nothing is left does not wait for jobs that it cannot read.
func TestBlindWorkerEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	producer := clientWith(t, pool, newKeyring(t, "k1"))
	for i := range 10 {
		enqueue(t, producer, i, nil)
	}
	w, err := worker.New(clientWith(t, pool, nil), &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler), Batch: worker.Batch{ExitWhenEmpty: true}})
	require.NoError(t, err)
	require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() { ended <- w.Run(ctx) }()
	require.NoError(t, receive(t, ended, "the end of the worker"))
	require.EqualValues(t, 10, w.Counts().Unreadable)
}

// A job that is unreadable again for the same reason leaves no other run in the history, and one
// for another reason does.
func TestUnreadableAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	id := enqueue(t, clientWith(t, pool, newKeyring(t, "k1")), 1, nil)
	for i, codec := range []jobq.Codec{nil, nil, newKeyring(t, "k2"), newKeyring(t, "k2"), nil} {
		if i > 0 {
			require.NoError(t, jobtest.Requeue(plain, id))
		}
		r := start(t, clientWith(t, pool, codec), nil, func(context.Context, *worker.Job[task]) error { return nil })
		awaitState(t, plain, id, jobq.StateScheduled)
		require.NoError(t, r.drain())
		require.EqualValues(t, 1, r.Counts().Unreadable)
		require.Len(t, attempts(t, plain, id), []int{1, 1, 2, 2, 3}[i])
	}
}

// failing is a codec whose Decode fails as the function says.
type failing struct {
	broken
	decode func(ctx context.Context) error
}

func (f failing) Decode(ctx context.Context, _ jobq.CodecValue, _ json.RawMessage) (json.RawMessage, error) {
	return nil, f.decode(ctx)
}

// The same reason is known again when it is so long that only parts of it were stored.
func TestLongReasonAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	id := enqueue(t, plain, 1, nil)
	long := failing{decode: func(context.Context) error { return errors.New(strings.Repeat("x", 1200)) }}
	for i := range 3 {
		if i > 0 {
			require.NoError(t, jobtest.Requeue(plain, id))
		}
		r := start(t, clientWith(t, pool, long), nil, func(context.Context, *worker.Job[task]) error { return nil })
		awaitState(t, plain, id, jobq.StateScheduled)
		require.NoError(t, r.drain())
		require.EqualValues(t, 1, r.Counts().Unreadable)
		require.Len(t, attempts(t, plain, id), 1)
	}
}

// Runs that were stopped while they waited for a key do not keep their kind from being claimed.
func TestStoppedDecode(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plain := clientWith(t, pool, nil)
	ids := make([]int64, 7)
	for i := range ids {
		ids[i] = enqueue(t, plain, i, &jobq.EnqueueOptions{Timeout: time.Millisecond})
	}
	slow := failing{decode: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
	start(t, clientWith(t, pool, slow), nil, func(context.Context, *worker.Job[task]) error { return nil })
	for _, id := range ids {
		job := awaitState(t, plain, id, jobq.StateScheduled)
		require.Zero(t, job.Attempts)
	}
}
