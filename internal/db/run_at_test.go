package db_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// The time of a job that was to run at once is stored once, when it is claimed: as when
// it was added. Whoever reads it sees no difference, and a run that is given back brings
// it back. That of any other job is kept beside.
func TestTimeOfAJobThatRunsAtOnce(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	waits := map[string]time.Duration{"at once": 0, "late": time.Hour} // of the kinds, when they were added
	for _, each := range []bool{false, true} {
		q.exec(`insert into jobq.pending (kind, run_at) values ('at once', now()), ('late', now() - interval '1 hour')`)
		asAdded := func() int {
			return q.number(`select count(*) from jobq.job
				where created_at - run_at = case kind when 'late' then interval '1 hour' else interval '0' end`)
		}
		require.Equal(t, 2, asAdded())
		claimed := q.exchange(db.Exchange{Owner: "a", Each: each, Claim: &db.JobClaimParams{
			Lease: hour, Owner: "a", Queue: "default", Kinds: []string{"at once", "late"}, JobCount: 2,
		}}).Claimed
		require.Len(t, claimed, 2)
		for _, job := range claimed {
			require.Equal(t, waits[job.Kind], job.CreatedAt.Time.Sub(job.RunAt.Time), job.Kind)
		}
		require.Equal(t, 1, q.number("select count(*) from jobq.run where run_at is null and kind = 'at once'"))
		require.Equal(t, 1, q.number("select count(*) from jobq.run where run_at is not null and kind = 'late'"))
		require.Equal(t, 2, asAdded())
		for _, job := range claimed {
			require.Equal(t, "available", q.end(job, db.Ending{Outcome: "released"}))
		}
		require.Equal(t, 2, asAdded())
		q.exec("delete from jobq.pending")
	}
}
