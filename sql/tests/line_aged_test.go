package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// waiting adds a job to the queue default that has waited for so long, and returns its
// position.
func (q *queue) waiting(kind string, priority int, long string) (position int64) {
	q.Helper()
	return int64(q.number(`insert into jobq.pending (kind, priority, run_at, created_at)
		values ($1, $2, now() - $3::text::interval, now() - $3::text::interval) returning position`, kind, priority, long))
}

func (q *queue) aged(kinds ...string) []db.Aged {
	q.Helper()
	other, err := q.schema.AgedPriorities(context.Background(), q.pool, "other", kinds)
	require.NoError(q, err)
	require.Empty(q, other)
	aged, err := q.schema.AgedPriorities(context.Background(), q.pool, "default", kinds)
	require.NoError(q, err)
	return aged
}

// A priority is aged when its first job has waited for age_after, if there are jobs of a
// more urgent one, and if the job is of a kind that is asked for and may run. The longest
// wait comes first.
func TestAgedPriorities(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	require.Empty(t, q.aged("k"))
	q.waiting("k", 0, "1 hour")
	require.Empty(t, q.aged("k"), "it is the most urgent")
	young := q.waiting("k", 3, "4 minutes")
	require.Empty(t, q.aged("k"), "it is not time")
	old := q.waiting("k", 9, "6 minutes")
	q.waiting("k", 9, "10 minutes") // behind it, such as one that was tried again
	oldest := q.waiting("other", 7, "20 minutes")
	require.Equal(t, []db.Aged{{Priority: 9, Position: old}}, q.aged("k"))
	require.Equal(t, []db.Aged{{Priority: 7, Position: oldest}, {Priority: 9, Position: old}}, q.aged("k", "other"))

	q.kindAct("kind_pause", "other")
	require.Equal(t, []db.Aged{{Priority: 9, Position: old}}, q.aged("k", "other"))
	q.set(`{"age_after": "1 minute"}`)
	require.Equal(t, []db.Aged{{Priority: 9, Position: old}, {Priority: 3, Position: young}}, q.aged("k"))
	q.set(`{"age_after": "0"}`)
	require.Empty(t, q.aged("k"), "never")
	q.set(`{"age_after": "1 minute"}`)
	q.exec("select jobq.act_queue('test', 'pause', 'default', null)")
	require.Empty(t, q.aged("k"), "nothing is claimed")
	q.exec("select jobq.act_queue('test', 'resume', 'default', null)")
	q.exec("update jobq.pending set run_at = now() where priority = 9")
	require.Equal(t, []db.Aged{{Priority: 3, Position: young}}, q.aged("k"), "a job that was tried again waits since then")
}

// Of many priorities the least urgent hundred are looked at, and of those that are aged
// ten count.
func TestAgedPrioritiesAreBounded(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec(`insert into jobq.pending (kind, priority, run_at, created_at)
		select 'k', i, now() - interval '1 hour' + i * interval '1 s', now() - interval '1 hour' + i * interval '1 s' from generate_series(1, 500) i`)
	aged := q.aged("k")
	require.Len(t, aged, 10)
	require.EqualValues(t, 402, aged[0].Priority, "the hundredth is the one that the others wait behind")
	require.EqualValues(t, 411, aged[9].Priority)
}

// A claim that begins with an aged priority takes its jobs first, and then, up to the
// count, the most urgent ones; also from a queue with limits, and no more than these admit.
func TestClaimBeginsWithAged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limits        string
		urgent, taken int
	}{
		"no limits": {"{}", 7, 10},
		"a limit":   {`{"max_running": 5}`, 2, 5},
		"a rate":    {`{"rate_jobs": 4, "rate_period": "1 h", "rate_burst": 4}`, 1, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(test.limits)
			for range 20 {
				q.waiting("k", 0, "1 second")
			}
			for range 3 {
				q.waiting("k", 9, "1 hour")
			}
			exchange := limited("a", 10)
			exchange.HasLimits = test.limits != "{}"
			db.Line{}.RestAfter(q.aged("k"), exchange.Claim)
			priorities := make(map[int16]int)
			for _, job := range q.exchange(exchange).Claimed {
				priorities[job.Priority]++
			}
			require.Equal(t, map[int16]int{0: test.urgent, 9: 3}, priorities)
			require.Equal(t, test.taken, q.number("select count(*) from jobq.run"))
		})
	}
}

// Jobs with partition keys have lines of their own, in which no priority ages: they are neither
// aged nor what others wait behind.
func TestAgedPrioritiesLeaveKeysOut(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec(`insert into jobq.pending (kind, priority, run_at, created_at, partition_key)
		select 'k', i, now() - interval '1 hour', now() - interval '1 hour', 'a' from unnest(array[0, 9]) i`)
	q.waiting("k", 5, "1 hour")
	require.Empty(t, q.aged("k"))
	old := q.waiting("k", 6, "1 hour")
	require.Equal(t, []db.Aged{{Priority: 6, Position: old}}, q.aged("k"))
}
