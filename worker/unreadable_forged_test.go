package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/keyring"
	"github.com/jobq-dev/jobq/worker"
)

// get is the job as it is stored.
func get(t *testing.T, client *jobq.Client, id int64) *jobq.Job {
	t.Helper()
	job, err := client.Get(context.Background(), id)
	if job == nil {
		require.NoError(t, err)
	}
	return job
}

// forge puts jobs at the head of the line whose args say that they are encrypted, as any producer can.
func forge(t *testing.T, producer *jobq.Client, count int, key string) (ids []int64) {
	t.Helper()
	for range count {
		ids = append(ids, enqueueRaw(t, producer, "task", fmt.Sprintf(`{"$jobq": "enc", "key": %q, "v": %q}`, key, strings.Repeat("A", 80)), nil))
	}
	return ids
}

// Args that somebody has forged, however many, keep no job of their kind from running: neither where keys are used,
// also under the name of a real one, nor where none are. Method: the first claim takes forged ones alone, beside another
// worker with the same keys.
func TestForgedArgsStopNobody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keys  []string // of the workers
		key   string   // that the forged args name
		count int
	}{
		"five, no keys":                {nil, "nobody", 5},
		"many, no keys":                {nil, "nobody", 200},
		"five, a key of nobody":        {[]string{"k1"}, "nobody", 5},
		"many, a key of nobody":        {[]string{"k1"}, "nobody", 200},
		"five, a key of the workers":   {[]string{"k1"}, "k1", 5},
		"many, a key of the workers":   {[]string{"k1"}, "k1", 200},
		"many, an old key of theirs":   {[]string{"k1", "k0"}, "k0", 200},
		"many, a name that no key has": {[]string{"k1"}, "no such name", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			plain := clientWith(t, pool, nil)
			client := plain
			if test.keys != nil {
				client = clientWith(t, pool, newKeyring(t, test.keys...))
			}
			forged := forge(t, plain, test.count, test.key)
			var good []int64
			for i := range 20 {
				good = append(good, enqueue(t, client, i, nil), enqueue(t, plain, i, nil))
			}
			log := new(logged)
			_, err := pool.Exec(context.Background(), `insert into jobq.worker (id, pid, hostname, version, queues, kinds, keys, heartbeat_at)
				values ('other', 1, 'h', 'v', '{"default": 1}', '{task}', coalesce($1, '{}'::text[]), now() + interval '1 hour')`, test.keys)
			require.NoError(t, err)
			w, err := worker.New(client, &worker.Config{
				NoJanitor: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
				Queues: map[string]worker.QueueConfig{"default": {Slots: 5, NoClaimAhead: true}},
			})
			require.NoError(t, err)
			require.NoError(t, worker.Handle(w, func(context.Context, *worker.Job[task]) error { return nil }, nil))
			run(t, w)
			for _, id := range good {
				awaitState(t, plain, id, jobq.StateCompleted)
			}
			require.Zero(t, log.count("pause="), "the kind was claimed all the time")
			for _, id := range forged {
				require.Eventually(t, func() bool {
					job := get(t, plain, id)
					return (job.State == jobq.StateScheduled || job.State == jobq.StateFailed) && strings.Contains(job.LastError, "cannot be decoded")
				}, patience, 2*time.Millisecond)
			}
		})
	}
}

// wrongKeyring has the name of a key, and a secret that it has nowhere else.
func wrongKeyring(t *testing.T, name string) *keyring.Keyring {
	t.Helper()
	ring, err := keyring.New(keyring.Key{Name: name, Secret: []byte(strings.Repeat("?", 32))})
	require.NoError(t, err)
	return ring
}

// A worker that was given a wrong secret under the right name loses no job, and neither does one that was given no keys.
func TestWrongKeysLoseNothing(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]jobq.Codec{"a wrong secret": wrongKeyring(t, "k1"), "another key": newKeyring(t, "k2"), "no keys": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			producer, plain := clientWith(t, pool, newKeyring(t, "k1")), clientWith(t, pool, nil)
			ids := make([]int64, 50)
			for i := range ids {
				ids[i] = enqueue(t, producer, i, &jobq.EnqueueOptions{MaxAttempts: 1})
			}
			wrong := start(t, clientWith(t, pool, codec), nil, func(context.Context, *worker.Job[task]) error { return nil })
			for range 2 {
				for _, id := range ids {
					require.Zero(t, awaitState(t, plain, id, jobq.StateScheduled).Attempts)
					require.NoError(t, jobtest.Requeue(plain, id))
				}
			}
			require.NoError(t, wrong.drain())
			require.Zero(t, wrong.Counts().Failed)
			start(t, producer, nil, func(context.Context, *worker.Job[task]) error { return nil })
			for _, id := range ids {
				if state := get(t, plain, id).State; state == jobq.StateScheduled {
					require.NoError(t, jobtest.Requeue(plain, id))
				}
				awaitState(t, plain, id, jobq.StateCompleted)
			}
		})
	}
}

// What no worker could read for the time that is set fails for good, and its error names the key. The time counts from the
// first run that could not read it, of any worker. While another worker lives that has the key, nothing fails.
func TestFailUnreadableAfter(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]jobq.Codec{"no keys": nil, "another key": newKeyring(t, "k2"), "a wrong secret": wrongKeyring(t, "k1")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			plain := clientWith(t, pool, nil)
			id := enqueue(t, clientWith(t, pool, newKeyring(t, "k1")), 1, nil)
			live := func() *running {
				return start(t, clientWith(t, pool, codec), nil, func(context.Context, *worker.Job[task]) error { return nil })
			}
			again := func(sql string, state jobq.State) *jobq.Job {
				if sql != "" {
					_, err := pool.Exec(context.Background(), sql)
					require.NoError(t, err)
				}
				require.NoError(t, jobtest.Requeue(plain, id))
				r := live()
				defer func() { require.NoError(t, r.drain()) }()
				return awaitState(t, plain, id, state)
			}
			r := live()
			awaitState(t, plain, id, jobq.StateScheduled)
			require.NoError(t, r.drain())
			again("update jobq.attempt set finished_at = finished_at - interval '23 hours'", jobq.StateScheduled)
			if name != "a wrong secret" { // such a worker cannot tell that the other has the right one
				again(`update jobq.attempt set finished_at = finished_at - interval '2 hours';
					insert into jobq.worker (id, pid, hostname, version, queues, kinds, keys, heartbeat_at)
						values ('other', 1, 'h', 'v', '{"default": 1}', '{task}', '{k1}', now() + interval '1 hour')`, jobq.StateScheduled)
			}
			job := again("delete from jobq.worker where id = 'other'; update jobq.attempt set finished_at = finished_at - interval '2 hours'", jobq.StateFailed)
			require.Contains(t, job.LastError, "no worker has been able to read this for ")
			require.Contains(t, job.LastError, `args cannot be decoded: encrypted with key "k1"`)
			again("", jobq.StateScheduled) // somebody has queued it again: the time begins anew
		})
	}
	for name, codec := range map[string]jobq.Codec{"never": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			plain := clientWith(t, pool, codec)
			id := forge(t, plain, 1, "nobody")[0]
			for i := range 2 {
				if i > 0 {
					require.NoError(t, jobtest.Requeue(plain, id))
				}
				r := start(t, plain, &worker.Config{FailUnreadableAfter: -1}, func(context.Context, *worker.Job[task]) error { return nil })
				awaitState(t, plain, id, jobq.StateScheduled)
				require.NoError(t, r.drain())
				_, err := pool.Exec(context.Background(), "update jobq.attempt set finished_at = finished_at - interval '1 year'")
				require.NoError(t, err)
			}
		})
	}
}

// Where the key has decrypted other values, one that it does not decrypt was changed: its job fails at once.
func TestDamagedArgsFail(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := clientWith(t, pool, newKeyring(t, "k1"))
	start(t, client, nil, func(context.Context, *worker.Job[task]) error { return nil })
	awaitState(t, client, enqueue(t, client, 1, nil), jobq.StateCompleted)
	id := forge(t, clientWith(t, pool, nil), 1, "k1")[0]
	require.Eventually(t, func() bool { return get(t, clientWith(t, pool, nil), id).State == jobq.StateFailed }, patience, 2*time.Millisecond)
	runs := attempts(t, client, id)
	require.Len(t, runs, 1)
	require.Equal(t, jobq.OutcomeFailed, runs[0].Outcome)
	require.Contains(t, runs[0].Error, `args cannot be decoded: encrypted with key "k1": the value was changed`)
}
