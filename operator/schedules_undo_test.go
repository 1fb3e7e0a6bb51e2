package operator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// undoing is a database whose schedules are changed, and the changes taken back.
type undoing struct {
	*testing.T
	ctx context.Context
	*operator.Operator
	m      *monitor.Monitor
	client *jobq.Client
}

func newUndoing(t *testing.T) *undoing {
	t.Helper()
	client := jobtest.Client(t)
	return &undoing{t, context.Background(), operator.New(client, "ann"), monitor.New(client), client}
}

func (u *undoing) set(s jobq.Schedule) int64 {
	u.Helper()
	id, err := u.SetSchedule(u.ctx, s)
	require.NoError(u, err)
	require.NotZero(u, id)
	return id
}

func (u *undoing) undo(auditID int64) {
	u.Helper()
	require.NoError(u, jobtest.ErrorOf(u.Undo(u.ctx, auditID)))
	require.ErrorIs(u, jobtest.ErrorOf(u.Undo(u.ctx, auditID)), jobq.ErrConflict, "once")
}

func (u *undoing) schedule() monitor.Schedule {
	u.Helper()
	s, err := u.m.Schedule(u.ctx, "s")
	require.NoError(u, err)
	return s
}

// everything is a schedule with all that can be set of one.
var everything = jobq.Schedule{
	Name: "s", Cron: "0 9 * * mon", TimeZone: "Europe/Berlin", Kind: "report", Args: json.RawMessage(`null`), Queue: "reports", Priority: -3,
	MaxAttempts: 5, Timeout: time.Minute, BackoffBase: time.Second, BackoffMax: time.Hour, Tags: []string{"a", "b"},
	Metadata: json.RawMessage(`{"trace": "x"}`), PartitionKey: "customer-17", CatchUp: jobq.CatchUpAll, CatchUpMax: 7, CatchUpWithin: 48 * time.Hour, Overlap: jobq.OverlapSkip, Source: "jobq.yaml",
}

// A change of a schedule is taken back in all that it has changed, the making of one
// removes it, and its removal brings all of it back: also args that are JSON's null.
func TestUndoSetSchedule(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	made := u.set(everything)
	change := u.set(jobq.Schedule{Name: "s", Every: time.Hour, Kind: "other", Args: json.RawMessage(`{"a": 1}`)})
	require.ErrorContains(t, jobtest.ErrorOf(u.Undo(u.ctx, made)), fmt.Sprintf("schedule s has had a change meanwhile, by action %d", change))
	u.undo(change)
	require.Equal(t, everything, u.schedule().Schedule)
	require.NotNil(t, u.schedule().NextAt)

	before := u.schedule()
	removed, err := u.RemoveSchedule(u.ctx, "s")
	require.NoError(t, err)
	u.undo(removed)
	require.Equal(t, everything, u.schedule().Schedule)
	require.Equal(t, before.CreatedAt, u.schedule().CreatedAt)

	other := everything
	other.Name = "t"
	u.undo(u.set(other))
	_, err = u.m.Schedule(u.ctx, "t")
	require.ErrorIs(t, err, jobq.ErrNotFound)
	entries, err := u.m.Audit(u.ctx, 0, 2)
	require.NoError(t, err)
	require.Equal(t, []any{jobq.ActionUndo, jobq.ActionScheduleRemove, "undo"}, []any{entries[0].Action, entries[1].Action, entries[1].Note})
}

// The undo of a pause lets a schedule go on, that of a resume pauses it for the reason
// that it was paused for; who paused or resumed it since is in the way, and who changed
// it is not. A schedule that was removed while it was paused comes back paused.
func TestUndoPauseSchedule(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	made := u.set(everything)
	paused, err := u.PauseSchedule(u.ctx, "s", "holidays")
	require.NoError(t, err)
	require.ErrorContains(t, jobtest.ErrorOf(u.Undo(u.ctx, made)), "schedule s has had a pause meanwhile", "who paused it wants it to be there")
	changed := everything
	changed.Priority = 9
	change := u.set(changed)
	u.undo(paused)
	require.Nil(t, u.schedule().PausedAt)
	u.undo(change)
	require.Equal(t, everything, u.schedule().Schedule)

	_, err = u.PauseSchedule(u.ctx, "s", "new year")
	require.NoError(t, err)
	resumed, err := u.ResumeSchedule(u.ctx, "s")
	require.NoError(t, err)
	u.undo(resumed)
	require.Equal(t, "new year", u.schedule().PauseReason)
	again, err := u.ResumeSchedule(u.ctx, "s")
	require.NoError(t, err)
	require.NoError(t, jobtest.ErrorOf(u.PauseSchedule(u.ctx, "s", "")))
	require.ErrorContains(t, jobtest.ErrorOf(u.Undo(u.ctx, again)), "schedule s has had a pause meanwhile")

	removed, err := u.RemoveSchedule(u.ctx, "s")
	require.NoError(t, err)
	u.undo(removed)
	require.NotNil(t, u.schedule().PausedAt)
	require.Nil(t, u.schedule().NextAt)
	removed, err = u.RemoveSchedule(u.ctx, "s")
	require.NoError(t, err)
	u.set(everything)
	require.ErrorContains(t, jobtest.ErrorOf(u.Undo(u.ctx, removed)), "schedule s has had a change meanwhile", "there is another one")
}

// A schedule that comes back fires at the ticks from then on: not at those that it has
// missed, although it catches up with all.
func TestUndoRemoveScheduleMissesTicks(t *testing.T) {
	t.Parallel()
	u := newUndoing(t)
	u.set(jobq.Schedule{Name: "s", Every: time.Second, Kind: "k", CatchUp: jobq.CatchUpAll})
	removed, err := u.RemoveSchedule(u.ctx, "s")
	require.NoError(t, err)
	u.undo(removed)
	entries, err := u.m.Audit(u.ctx, removed+1, 1)
	require.NoError(t, err)
	require.True(t, u.schedule().NextAt.After(entries[0].At), "its next tick is after its removal")
	var after bool
	require.NoError(t, u.client.Pool().QueryRow(u.ctx,
		"select s.cursor_at > a.at and s.due_at >= s.cursor_at from jobq.schedule s, jobq.audit a where a.id = $1", removed).Scan(&after))
	require.True(t, after, "all ticks up to now are dealt with")
}
