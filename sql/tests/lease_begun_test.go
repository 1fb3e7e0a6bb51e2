package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// claimAhead claims jobs of kind k while so many slots are free.
func (q *queue) claimAhead(owner string, count int32, free int) []db.JobClaimRow {
	q.Helper()
	return q.exchange(db.Exchange{Owner: owner, ClaimsAhead: true, SlotsFree: free, Claim: &db.JobClaimParams{
		Lease: hour, Owner: owner, Queue: "default", Kinds: []string{"k"}, JobCount: count,
	}}).Claimed
}

// Of a lost lease, the jobs beyond begun go back as they were: no attempt, no crash, no error, no row in
// the history, no event, and no lost run in the statistics; those that somebody has cancelled are
// cancelled. It is the same for expired leases and for those of a worker that is known to be dead.
func TestReapReturnsWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	for name, owners := range map[string][]string{"expired": nil, "dead": {"a"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.exec("insert into jobq.queue (name, redelivery, redelivery_delay, reset_on_reap) values ('default', 'tail', '1 hour', true) on conflict do nothing")
			q.exec("select jobq.enqueue('k', priority => 6 - i, max_attempts => 1 + i % 2) from generate_series(1, 6) i")
			q.exec("update jobq.pending set attempts = 1, max_attempts = 3, crashes = 1, last_error = 'before', clear_reason = 'why', checkpoint = '7' where priority = 3")
			const waiting = "select jsonb_agg(to_jsonb(p) - 'lease_token' order by p.priority)::text from jobq.pending p where p.priority > 1 and p.priority <> 5"
			before := q.text(waiting)
			require.Len(t, q.claimAhead("a", 6, 2), 6)
			require.Equal(t, 2, q.number("select begun from jobq.lease"))
			require.Equal(t, 6, q.number("select count(*) from jobq.run r join jobq.lease l on l.id = r.lease_id and l.job_ids[r.slot] = r.id and r.slot = r.priority + 1"),
				"slots are in the order of the line")
			q.exec("update jobq.run set cancel_requested_at = now() where priority = 5")
			q.expire()
			reaped, err := q.schema.Reap(ctx, q.pool, owners, 100, "test")
			require.NoError(t, err)
			require.Len(t, reaped, 6)
			begun := 0
			for _, job := range reaped {
				if job.Begun {
					begun++
				}
			}
			require.Equal(t, 2, begun)
			require.Equal(t, before, q.text(waiting))
			require.Equal(t, 2, q.number("select count(*) from jobq.attempt where outcome = 'lost'"))
			require.Equal(t, 2, q.number("select count(*) from jobq.attempt"))
			require.Equal(t, 2, q.number("select count(*) from jobq.event where type in ('stalled', 'orphaned')"))
			require.Equal(t, 2, q.number("select sum(lost) from jobq.stats"))
			require.Equal(t, 1, q.number("select sum(cancelled) from jobq.stats"))
			require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'cancelled' and attempts = 0 and crashes = 0 and last_error is null"))
			require.Zero(t, q.number("select count(*) from jobq.lease"))
		})
	}
}

// begun never becomes smaller: an earlier request that comes late changes nothing. What is said of
// another claim with the same id is refused, and so is what another owner says.
func TestBegunOnlyGrows(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 9)")
	job := q.claimAhead("a", 9, 2)[0]
	begin := func(owner string, slot int16, at db.Slot) []int64 {
		return q.exchange(db.Exchange{Owner: owner, Begin: []db.LeaseBegin{{Token: at.Token, ClaimedAt: at.ClaimedAt, Slot: slot}}}).Begun
	}
	earlier := at(job)
	require.Equal(t, []int64{job.LeaseToken}, begin("a", 5, at(job)))
	require.Equal(t, []int64{job.LeaseToken}, begin("a", 3, at(job)))
	require.Equal(t, 5, q.number("select begun from jobq.lease"))
	require.Empty(t, begin("b", 7, at(job)))
	earlier.ClaimedAt = job.StartedAt.Time.Add(-1000)
	require.Empty(t, begin("a", 7, earlier))
	require.Equal(t, 5, q.number("select begun from jobq.lease"))
	q.exec("update jobq.lease set lost_at = now()")
	require.Empty(t, begin("a", 7, at(job)))
}

// A claim runs ahead of free slots only if none of its jobs would fail when it is lost.
func TestClaimBeginsSoon(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempts string
		want     int
	}{"retried": {"5", 4}, "one at the last attempt": {"case when i = 9 then 1 else 5 end", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.exec("select jobq.enqueue('k', max_attempts => " + test.attempts + ") from generate_series(1, 9) i")
			q.exchange(db.Exchange{Owner: "a", ClaimsAhead: true, SlotsFree: 2, BeginSoon: 4, Claim: &db.JobClaimParams{
				Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"k"}, JobCount: 9,
			}})
			require.Equal(t, test.want, q.number("select begun from jobq.lease"))
		})
	}
}
