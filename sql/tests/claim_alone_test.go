package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// alone is the suspect of these kinds in the queue default that a claim for a worker without runs takes, if any.
func (q *queue) alone(kinds ...string) []db.KeyedJob {
	q.Helper()
	jobs, err := q.schema.ClaimAlone(context.Background(), q.pool, db.JobClaimAloneParams{
		Queue: "default", Kinds: kinds, Owner: "w", Lease: db.Interval(time.Minute),
	})
	require.NoError(q, err)
	return jobs
}

// lose takes the leases of all workers away.
func (q *queue) lose() []db.LeaseReapRow {
	q.Helper()
	q.exec("update jobq.lease set expires_at = now() - interval '1 s'")
	reaped, err := q.schema.Reap(context.Background(), q.pool, nil, 100, "test")
	require.NoError(q, err)
	return reaped
}

func (q *queue) due() {
	q.exec("update jobq.pending set run_at = now() - interval '1 s' where position is null")
}

// A job that is lost once comes back to the line. Lost twice in a row, it is a suspect: no claim takes it but
// the one for a worker that is alone, after its backoff. Lost again, it is named, until it fails for good.
func TestSuspects(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("insert into jobq.pending (kind) values ('k')")
	q.exec("update jobq.pending set max_attempts = 5")
	require.Empty(t, q.alone("k"))
	require.Len(t, q.exchange(plain("w", 10)).Claimed, 1)
	require.Equal(t, []string{"available"}, states(q.lose()))
	require.Empty(t, q.alone("k"))
	require.Len(t, q.exchange(plain("w", 10)).Claimed, 1)
	lost := q.lose()
	require.Equal(t, []string{"scheduled"}, states(lost))
	require.Zero(t, lost[0].Alone, "another one may have done it")
	for again := 1; again <= 3; again++ {
		require.Empty(t, q.exchange(plain("w", 10)).Claimed)
		require.Equal(t, 1, q.number("select count(*) from jobq.why((select max(id) from jobq.job)) where reason = 'alone'"))
		q.exec("update jobq.pending set run_at = now() + interval '1 hour'")
		require.Empty(t, q.alone("k"), "it waits its backoff")
		q.due()
		_, err := q.schema.Promote(context.Background(), q.pool, db.DuePlace{}, 100)
		require.NoError(t, err)
		require.Empty(t, q.exchange(plain("w", 10)).Claimed, "due")
		require.Empty(t, q.alone("other"))
		require.Equal(t, 1, q.number("select count(*) from jobq.requeue((select max(id) from jobq.job)) s where s = 'scheduled'"))
		require.Empty(t, q.exchange(plain("w", 10)).Claimed, "requeued")
		require.Len(t, q.alone("k"), 1)
		lost = q.lose()
		require.Len(t, lost, 1)
		require.Equal(t, int32(again), lost[0].Alone)
	}
	require.Equal(t, []string{"failed"}, states(lost))
	require.Equal(t, 1, q.number("select count(*) from jobq.job where last_error like '%alone in its worker when that was lost, 3 times in a row%'"))
	require.Equal(t, 1, q.number("select count(*) from jobq.event where message like '%alone in its worker when that was lost, 3 times in a row%'"))
	require.Equal(t, 1, q.number("select count(*) from jobq.attempt where error like '%alone in its worker when that was lost, 3 times in a row%'"))
}

func states(reaped []db.LeaseReapRow) (states []string) {
	for _, row := range reaped {
		states = append(states, string(row.State))
	}
	return states
}

// A suspect that ends by itself is none any more, whatever the end; one that a worker gives back still is.
// The last attempt of a job that was lost is given alone.
func TestSuspectsNoMore(t *testing.T) {
	t.Parallel()
	for outcome, stays := range map[string]bool{"failed": false, "timed_out": false, "snoozed": false, "released": true, "unreadable": true} {
		t.Run(outcome, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("insert into jobq.pending (kind) values ('k')")
			q.exec("update jobq.pending set max_attempts = 2")
			require.Len(t, q.exchange(plain("w", 10)).Claimed, 1)
			require.Equal(t, []string{"scheduled"}, states(q.lose()), "one attempt is left")
			q.exec("update jobq.pending set max_attempts = 9, crashes = 2")
			q.due()
			jobs := q.alone("k")
			require.Len(t, jobs, 1)
			q.exchange(db.Exchange{Owner: "w", Queue: "default", Endings: []db.Ending{endingOf(jobs[0].JobClaimRow, outcome)}})
			expected := 0
			if stays {
				expected = 1
			}
			require.Equal(t, expected, q.number("select count(*) from jobq.pending where crashes = 2 and position is null"))
			require.Equal(t, 1-expected, q.number("select count(*) from jobq.pending where crashes = 0"))
		})
	}
}

// A suspect obeys what other jobs obey: pauses of its queue, kind and key, limits and rates of its queue and its key, and the order
// of its key, whose next job waits for it.
func TestSuspectsObey(t *testing.T) {
	t.Parallel()
	suspect := func(t *testing.T, settings string) *queue {
		t.Helper()
		q := setUp(t)
		q.set(settings)
		q.exec("insert into jobq.pending (kind, partition_key, crashes, attempts) values ('k', 'a', 2, 2)")
		return q
	}
	for what, settings := range map[string]string{
		"a limit": `{"max_running": 1}`, "a rate": `{"rate_jobs": 1, "rate_period": "1 day"}`,
		"a limit of keys": `{"key_limit": 1}`, "a rate of keys": `{"key_rate_jobs": 1, "key_rate_period": "1 day"}`, "an order": `{"key_order": "hold"}`,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			q := suspect(t, settings)
			q.exec("insert into jobq.pending (kind, partition_key) values ('k', 'a'), ('k', 'a')")
			require.Len(t, q.exchange(keyed("w", 10)).Keyed, 1)
			require.Empty(t, q.alone("k"))
		})
		t.Run(what+" after it", func(t *testing.T) {
			t.Parallel()
			q := suspect(t, settings)
			q.exec("insert into jobq.pending (kind, partition_key) values ('k', 'b'), ('k', 'a'), ('k', 'a')")
			require.Len(t, q.alone("k"), 1)
			for range 2 {
				for _, job := range q.exchange(keyed("w", 10)).Keyed {
					require.Equal(t, "b", job.PartitionKey)
				}
			}
		})
	}
	for what, pause := range map[string]string{
		"its queue": "insert into jobq.queue (name, paused_at) values ('default', now())",
		"its kind":  "insert into jobq.kind (name, paused_at) values ('k', now())",
		"its key":   "insert into jobq.paused_key (queue, key, paused_at, paused_by) values ('default', 'a', now(), 'me')",
	} {
		t.Run("a pause of "+what, func(t *testing.T) {
			t.Parallel()
			q := suspect(t, "{}")
			q.exec("delete from jobq.queue")
			q.exec(pause)
			require.Empty(t, q.alone("k"))
			next, err := q.queries.SuspectNext(context.Background(), []string{"default"}, []string{"k"})
			require.NoError(t, err)
			require.Empty(t, next)
		})
	}
}

// The head of a key in strict order holds its key while it waits to run alone, and is claimed as its head.
func TestSuspectIsTheHead(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"hold", "pass", "stop"} {
		q := ordered(t, order)
		q.exec("insert into jobq.pending (id, kind, partition_key, attempts) overriding system value select i, 'k', 'a', 0 from generate_series(1, 3) i")
		q.takeOne(1, order)
		q.lose()
		q.takeOne(1, order)
		require.Equal(t, []string{"scheduled"}, states(q.lose()))
		q.due()
		if order != "pass" {
			require.Empty(t, q.next(), order)
		}
		jobs := q.alone("k")
		require.Len(t, jobs, 1)
		require.Empty(t, q.next(), order)
		require.Empty(t, q.alone("k"))
		q.over(jobs[0], "completed", false)
		require.Equal(t, []int64{2}, q.next(), fmt.Sprint(order, ": a hint has come with the end"))
	}
}
