package tests

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A lease that has ended is left alone for its queue's grace, and NextDue
// knows when that is over.
func TestStaleGrace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("insert into jobq.queue (name, stale_grace) values ('default', '1 hour')")
	q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
	q.claimEach("a", 2)
	q.change(pgtest.Columns{"lease_expires_at": "now() - interval '1 hour' + interval '10 s' * (case id when 1 then 1 else -1 end)"}, "true")
	next, err := q.nextDue(24*3600_000, 24*3600_000, true)
	require.NoError(t, err)
	require.Negative(t, next.Ms)
	rows, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.EqualValues(t, 2, rows[0].ID)
	next, err = q.nextDue(24*3600_000, 24*3600_000, true)
	require.NoError(t, err)
	require.InDelta(t, 10_000, next.Ms, 9_000)
	next, err = q.nextDue(24*3600_000, 24*3600_000, false)
	require.NoError(t, err)
	require.InDelta(t, 24*3600_000, next.Ms, 9_000, "who does not reap does not wake for it")
}

// A reaped job goes to the tail, or to the head where it was, or waits first,
// as its queue says; the next run is told why, and begins with the checkpoint
// or without.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setting string
		first   int64 // to be claimed next
		state   string
		kept    int
	}{
		"default": {"lease = lease", 2, "available", 1},
		"tail":    {"redelivery = 'tail', reset_on_reap = true", 2, "available", 0},
		"head":    {"redelivery = 'head'", 1, "available", 1},
		"delayed": {"redelivery_delay = '1 hour'", 2, "scheduled", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.exec("insert into jobq.queue (name) values ('default')")
			q.exec("update jobq.queue set " + test.setting)
			q.exec("select jobq.enqueue('k') from generate_series(1, 2)")
			require.EqualValues(t, 1, q.claim("a", 1)[0].ID)
			q.change(pgtest.Columns{"checkpoint": `'{"at": 7}'`, "lease_expires_at": "now() - interval '1 s'"}, "true")
			rows, err := q.schema.Reap(ctx, q.pool, nil, 100, "test")
			require.NoError(t, err)
			require.Equal(t, test.state, rows[0].State)
			require.Equal(t, test.kept, q.number("select count(*) from jobq.pending where id = 1 and checkpoint is not null"))
			require.Equal(t, 1, q.number("select count(*) from jobq.pending where id = 1 and clear_reason = 'lease expired: worker a stopped responding' and clear_reason = last_error"))
			require.Equal(t, test.first, q.claim("b", 1)[0].ID)
			require.Equal(t, 1, q.number("select count(*) from jobq.event where type = 'stalled' and job_id = 1 and source = 'test'"))
		})
	}
}

// With owners, a reap takes theirs alone, expired or not, and says so.
func TestReapOwners(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k') from generate_series(1, 9)")
	q.claim("web-1-7-aa", 3)
	q.claim("web-1-2-7-aa", 3)
	q.claim("web-1", 3)
	q.change(pgtest.Columns{"lease_expires_at": "now() - interval '1 s'"}, "lease_owner = 'web-1'")
	rows, err := q.schema.Reap(ctx, q.pool, []string{"web-1-7-aa", "nobody"}, 100, "me")
	require.NoError(t, err)
	require.Len(t, rows, 3)
	require.Equal(t, 3, q.number("select count(*) from jobq.pending where attempts = 1 and crashes = 1 and last_error = 'orphaned by worker restart'"))
	require.Equal(t, 3, q.number("select count(*) from jobq.event where type = 'orphaned' and source = 'me'"))
	require.Equal(t, 6, q.number("select count(*) from jobq.job where state = 'running'"))
	rows, err = q.schema.Reap(ctx, q.pool, []string{}, 100, "me")
	require.NoError(t, err)
	require.Empty(t, rows, "no owners is not everybody")
}

// The reason for which a job was taken away is there for its next run, also if
// that is given back unstarted, and gone after one that has ended.
func TestClearReason(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	q.claim("a", 1)
	q.expire()
	_, err := q.schema.Reap(ctx, q.pool, nil, 1, "test")
	require.NoError(t, err)
	claimed := q.claim("a", 1)
	require.Equal(t, "lease expired: worker a stopped responding", *claimed[0].ClearReason)
	q.end(claimed[0], db.Ending{Outcome: "released"})
	claimed = q.claim("a", 1)
	require.NotNil(t, claimed[0].ClearReason)
	q.end(claimed[0], db.Ending{Outcome: "snoozed", Delay: db.DelayOf(0)})
	require.Nil(t, q.claim("a", 1)[0].ClearReason)
}

// An extension never shortens a lease, one of 0 only asks, and a report of
// progress extends where it is told to.
func TestExtensionNeverShortens(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec("select jobq.enqueue('k')")
	job := q.claim("a", 1)[0]
	expiry := func() (at time.Time) {
		require.NoError(t, q.pool.QueryRow(ctx, "select lease_expires_at from jobq.job").Scan(&at))
		return at
	}
	before := expiry()
	for _, lease := range []time.Duration{time.Second, 0} {
		require.Equal(t, db.LeaseOK, q.extend("a", at(job), lease))
		require.Equal(t, before, expiry())
	}
	q.change(pgtest.Columns{"lease_expires_at": "now() - interval '1 hour'"}, "true")
	require.Equal(t, db.LeaseOK, q.extend("a", at(job), 0))
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and lease_expires_at < now()"), "to ask does not bring it back")

	stored, err := q.queries.RunProgress(ctx, db.RunProgressParams{ID: 1, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt})
	require.NoError(t, err)
	require.EqualValues(t, 1, stored)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and lease_expires_at < now()"))
	_, err = q.queries.RunProgress(ctx, db.RunProgressParams{ID: 1, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt, ExtendBy: db.Interval(time.Minute)})
	require.NoError(t, err)
	_, err = q.queries.RunCheckpoint(ctx, db.RunCheckpointParams{ID: 1, Token: job.LeaseToken, Owner: "a", ClaimedAt: job.StartedAt, Checkpoint: []byte("{}"), ExtendBy: db.Interval(time.Hour)})
	require.NoError(t, err)
	require.Equal(t, 1, q.number("select count(*) from jobq.job where state = 'running' and lease_expires_at > now() + interval '59 m'"))
}
