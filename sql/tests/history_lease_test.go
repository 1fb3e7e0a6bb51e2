package tests

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// plainly is a run that plainly succeeds.
func plainly(job db.JobClaimRow) db.Completion {
	return db.Completion{Slot: at(job), Kind: job.Kind}
}

// onRow is a run that succeeds on its own row.
func onRow(job db.JobClaimRow) db.Completion {
	completion := plainly(job)
	completion.OnRow = true
	return completion
}

func (q *queue) completes(completions ...db.Completion) {
	q.Helper()
	answer := q.exchange(db.Exchange{Owner: "a", Completions: completions})
	require.Len(q, answer.Completed, len(completions))
	require.Empty(q, answer.Unrecorded)
}

// age moves all claims into the past by so many days, ends included, and the
// tokens of these jobs with them.
func (q *queue) age(days int64, jobs []db.JobClaimRow) {
	q.Helper()
	q.exec("update jobq.run set lease_id = lease_id - ($1::bigint << 40), finished_at = finished_at - $1::integer * interval '1 day'", days)
	q.exec("update jobq.lease set id = id - ($1::bigint << 40), claimed_at = claimed_at - $1::integer * interval '1 day'", days)
	q.exec("update jobq.past_lease set id = id - ($1::bigint << 40), claimed_at = claimed_at - $1::integer * interval '1 day'", days)
	for i := range jobs {
		jobs[i].LeaseToken -= days << 40
		jobs[i].StartedAt.Time = jobs[i].StartedAt.Time.AddDate(0, 0, int(-days))
	}
}

// Trap 6: a day goes from the history when nothing of it runs and nothing of it
// has ended since: a job that runs for weeks keeps its day, and the leases of a day
// go after its jobs. That holds for a partition and for what the default
// partitions have caught.
func TestDayOfAnOpenLeaseStays(t *testing.T) {
	t.Parallel()
	const days = 20
	for name, prune := range map[string]func(q *queue){
		"partition": func(q *queue) {
			for _, parent := range []string{"past_lease", "run"} {
				_, err := q.queries.PartitionPrune(context.Background(), parent)
				require.NoError(q, err)
			}
		},
		"default": func(q *queue) {
			for _, parent := range []string{"past_lease", "run"} {
				row, err := q.queries.DefaultPrune(context.Background(), db.DefaultPruneParams{Parent: parent, RowCount: 100})
				require.NoError(q, err)
				require.Less(q, row.Looked, int64(100))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			if name == "partition" {
				for _, parent := range []string{"past_lease", "run"} {
					added, err := q.queries.PartitionAdd(context.Background(), parent, -days)
					require.NoError(t, err)
					require.True(t, added)
				}
			}
			count := func() []int {
				return []int{q.number("select count(*) from jobq.run"), q.number("select count(*) from jobq.past_lease") + q.number("select count(*) from jobq.lease")}
			}
			q.exec("select jobq.enqueue('k') from generate_series(1, 3)")
			jobs := q.claim("a", 2)
			other := q.claim("a", 1)
			q.completes(plainly(jobs[0]), plainly(other[0]))
			require.Equal(t, 1, q.number("select count(*) from jobq.past_lease"), "of the lease whose one job has ended")
			q.age(days, jobs)

			prune(q)
			stays := 3 // a day stays as a whole
			if name == "default" {
				stays = 1 // each row for itself
			}
			require.Equal(t, []int{stays, 2}, count(), "one of the jobs runs")

			q.completes(onRow(jobs[1]))
			require.Zero(t, q.number("select count(*) from jobq.lease"))
			prune(q)
			require.Equal(t, stays, q.number("select count(*) from jobq.run"), "it has ended just now")
			require.Equal(t, 1, q.number("select count(*) from jobq.job where id = $1 and state = 'completed' and lease_owner = 'a' and finished_at > started_at + interval '19 days'", jobs[1].ID))

			q.exec("update jobq.run set finished_at = finished_at - $1::integer * interval '1 day'", days)
			prune(q)
			require.Zero(t, q.number("select count(*) from jobq.run"))
			require.NotZero(t, q.number("select count(*) from jobq.past_lease"), "leases go after their jobs")
			prune(q)
			require.Equal(t, []int{0, 0}, count())
		})
	}
}
