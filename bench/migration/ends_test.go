package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Goal: what only the second layout can say comes back: a lease of which one job
// has plainly succeeded, one has failed for good and one, with progress and a
// checkpoint, still runs; a job with a result; a lease that was taken away from
// its owner, which the first layout knows by its expiry alone.
func TestEveryKindOfEndComesBack(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := &bed{T: t, url: pgtest.URL(t)}
	b.conn = b.connect()
	l, err := newLoad(b.url)
	require.NoError(t, err)
	s := l.layouts[secondName].(second)
	b.exec("insert into jobq.pending (queue, kind) select 'kept', 'k' from generate_series(1, 5)")
	jobs, err := s.claim(ctx, b.conn, "owner", queueKept, 4)
	require.NoError(t, err)
	require.Len(t, jobs, 4)
	lost, err := s.claim(ctx, b.conn, "lost", queueKept, 1)
	require.NoError(t, err)
	answer, err := s.schema.Exchange(ctx, b.conn, db.Exchange{
		Owner:       "owner",
		Completions: []db.Completion{{Slot: jobs[0], Kind: kind}, {Slot: jobs[1], Kind: kind, Result: json.RawMessage(`{"r": 1}`), Ran: time.Millisecond}},
		Endings:     []db.Ending{{Slot: jobs[2], Outcome: "failed", Error: "it has failed", Final: true, Started: true}},
	})
	require.NoError(t, err)
	require.Len(t, answer.Completed, 2)
	require.Len(t, answer.Ended, 1)
	percent, stage := float32(50), "half"
	reported, err := s.schema.Queries(b.conn).RunProgress(ctx, db.RunProgressParams{ID: jobs[3].ID, Token: jobs[3].Token, Owner: "owner", Percent: &percent, Stage: &stage})
	require.NoError(t, err)
	require.EqualValues(t, 1, reported)
	reported, err = s.schema.Queries(b.conn).RunCheckpoint(ctx, db.RunCheckpointParams{ID: jobs[3].ID, Token: jobs[3].Token, Owner: "owner", Checkpoint: json.RawMessage(`{"at": 2}`)})
	require.NoError(t, err)
	require.EqualValues(t, 1, reported)
	b.exec(fmt.Sprintf("update jobq.lease set lost_at = clock_timestamp() where id = %d", lost[0].Token))
	require.NoError(t, snapshot(ctx, b.conn, "before"))

	_, err = b.migration().down(ctx)
	require.NoError(t, err)
	const expires = "select lease_expires_at from jobq.job where id = $1"
	var at time.Time
	require.NoError(t, b.conn.QueryRow(ctx, expires, lost[0].ID).Scan(&at))
	var now time.Time
	require.NoError(t, b.conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now))
	require.True(t, at.Before(now), "it is reaped at once")
	b.exec(fmt.Sprintf("delete from checks.before where id = %d", lost[0].ID)) // it differs in that
	require.NoError(t, checkSame(ctx, b.conn))
	var states []string
	require.NoError(t, b.conn.QueryRow(ctx, "select array_agg(state::text order by id) from jobq.job where lease_owner = 'owner'").Scan(&states))
	require.Equal(t, []string{"completed", "completed", "failed", "running"}, states)
}
