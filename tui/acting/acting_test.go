package acting

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// writer is a database that says yes to all, and takes an action by filter that ends
// when it is stopped.
type writer struct {
	Writer
	acted []operator.Target
}

func (w *writer) Act(_ context.Context, action jobq.Action, targets ...operator.Target) (*operator.Acted, error) {
	w.acted = targets
	acted := &operator.Acted{AuditID: 7}
	for _, target := range targets {
		acted.Jobs = append(acted.Jobs, operator.ActedJob{ID: target.ID, Before: target.State, After: jobq.StateAvailable, Changed: true})
	}
	return acted, nil
}

func (w *writer) Bulk(ctx context.Context, params operator.BulkParams) (operator.BulkProgress, error) {
	params.OnBatch(operator.BulkProgress{AuditID: 8, Done: 1000})
	<-ctx.Done()
	return operator.BulkProgress{AuditID: 8, Done: 2000, Refused: 2, Problems: []operator.ActedJob{{ID: 41, Problem: "it is running now"}}}, ctx.Err()
}

func newPart(confirm bool) (*Part, *writer) {
	w := &writer{}
	return New(Kit{Key: command.Key, Place: func() Place { return Place{Writer: w, Confirm: confirm} }}), w
}

var failed = screen.Selection{Targets: []operator.Target{{ID: 42, State: jobq.StateFailed, LeaseToken: 5}}}

// all are the requests of a request, in their order.
func all(t *testing.T, asked any) []any {
	t.Helper()
	list, ok := asked.(request.All)
	require.True(t, ok, "%T", asked)
	requests := make([]any, len(list))
	for i := range list {
		requests[i] = list[i]
	}
	return requests
}

// An action on one job is begun at once, its answer is told, and it is the last one
// then, which undo takes back; where it is asked for, it is asked about first.
func TestActAlone(t *testing.T) {
	t.Parallel()
	p, w := newPart(false)
	require.Equal(t, "there is nothing to undo", p.Actions(failed)[command.Undo].Disabled())
	change, ok := p.Actions(failed)[command.Requeue].Run().(request.Change)
	require.True(t, ok)
	require.Equal(t, command.Requeue, change.Verb)
	answer := change.Do.(request.Begin).Run()
	require.Equal(t, failed.Targets, w.acted)
	told := all(t, p.Update(answer))
	require.Equal(t, request.Tell{Text: "requeue job 42: it is available   " + command.Key(command.Undo) + " undo"}, told[0])
	require.IsType(t, request.Renew{}, told[1])
	require.IsType(t, request.Screens{}, told[2])
	undo := p.Actions(failed)[command.Undo]
	require.Empty(t, undo.Disabled())
	require.True(t, undo.Alone)

	p, w = newPart(true)
	ask, ok := p.Actions(failed)[command.Requeue].Run().(request.Ask)
	require.True(t, ok)
	require.IsType(t, request.Change{}, ask.Yes)
	require.Empty(t, w.acted)
}

// Each state refuses what makes no sense in it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	p, _ := newPart(false)
	for _, test := range []struct {
		state jobq.State
		id    string
		want  string
	}{
		{jobq.StateRunning, command.Requeue, "cancel it first"},
		{jobq.StateAvailable, command.Requeue, "available already"},
		{jobq.StateFailed, command.Requeue, ""},
		{jobq.StateFailed, command.Cancel, "it is failed"},
		{jobq.StateRunning, command.Cancel, ""},
		{jobq.StateRunning, command.Delete, "cancel it first"},
		{jobq.StateCompleted, command.Delete, ""},
	} {
		why := p.Actions(screen.Selection{Targets: []operator.Target{{ID: 1, State: test.state}}})[test.id].Disabled()
		if test.want == "" {
			require.Empty(t, why)
			continue
		}
		require.Contains(t, why, test.want)
	}
	require.Equal(t, "no job is selected", p.Actions(screen.Selection{})[command.Requeue].Disabled())
	require.Contains(t, p.Actions(screen.Selection{Counting: true})[command.Requeue].Disabled(), "still being counted")
	require.NotEmpty(t, p.Actions(screen.Selection{})[command.Pause].Disabled())
	require.NotEmpty(t, p.Actions(screen.Selection{})[command.Drain].Disabled())
	require.NotEmpty(t, p.Actions(screen.Selection{})[command.Resume].Disabled())
}

// What could not be counted to its end is confirmed with a word, and never with a number that is
// wrong; a part of it of a known size with that number. What was counted is typed in full.
func TestBulkOfUncountedAsksForAWord(t *testing.T) {
	t.Parallel()
	p, _ := newPart(false)
	ask := func(snapshot operator.BulkSnapshot, most int) request.Ask {
		return p.Update(request.ActOnAll{Action: jobq.ActionCancel, Filter: "state:available", Snapshot: snapshot, Max: most}).(request.Later).Overlay.(request.Ask)
	}
	some := operator.BulkSnapshot{At: time.Now(), Count: jobq.CountMax, More: true}
	asked := ask(some, 0)
	require.Equal(t, "cancel all jobs that match, more than 10,000", asked.Title)
	require.Equal(t, request.Typed{Text: "all", Meaning: "which are more than 10,000 jobs", Effect: "cancel them"}, asked.Typed)
	begun := all(t, p.Update(asked.Yes.(request.Change).Do))
	require.Zero(t, begun[0].(request.Progress).Total)
	require.Equal(t, "cancel: 0 done; esc stops", p.Bulk())

	require.Equal(t, "10", ask(some, 10).Typed.Text)
	require.Equal(t, "all", ask(some, 20_000).Typed.Text)
	asked = ask(operator.BulkSnapshot{At: time.Now(), Count: 3_000_000}, 0)
	require.Equal(t, "cancel 3,000,000 jobs that match", asked.Title)
	require.Equal(t, "3000000", asked.Typed.Text)
}

// An action by filter is asked about, shows its steps as an overlay that is made as
// all others are, and ends with its last step when it is stopped.
func TestBulkAlone(t *testing.T) {
	t.Parallel()
	p, _ := newPart(false)
	selected := screen.Selection{All: &screen.AllMatching{Filter: "state:failed", Snapshot: operator.BulkSnapshot{At: time.Now(), Count: 3000}}}
	ask, ok := p.Actions(selected)[command.Requeue].Run().(request.Ask)
	require.True(t, ok)
	require.Equal(t, "3000", ask.Typed.Text)
	begun := all(t, p.Update(ask.Yes.(request.Change).Do))
	require.Equal(t, int64(3000), begun[0].(request.Progress).Total)
	require.Contains(t, p.Bulk(), "0 of 3,000 done")

	last := make(chan any, 1)
	go func() { last <- begun[1].(request.Begin).Run() }()
	stepped := all(t, p.Update(begun[2].(request.Run).Run()))
	require.Equal(t, request.Step{Done: 1000}, stepped[0])
	require.Contains(t, p.Bulk(), "1,000 of 3,000 done")
	p.Update(request.StopBulk{})
	ended := all(t, p.Update(<-last))
	require.Contains(t, ended[0].(request.Tell).Text, "requeue: 2,000 jobs changed, 2 left alone (job 41: it is running now); stopped")
	require.Equal(t, request.Step{Done: 2000, Refused: 2, Ended: true}, ended[3])
	require.Empty(t, p.Bulk())
}
