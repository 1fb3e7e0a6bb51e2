package acting

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
)

// A question speaks of what it is about: of one job or of many, of those that run or
// that wait, of jobs or of a queue.
func TestQuestionsSpeakOfWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	target := func(states ...jobq.State) (selected screen.Selection) {
		for i, state := range states {
			selected.Targets = append(selected.Targets, operator.Target{ID: int64(i + 1), State: state})
		}
		return selected
	}
	p, _ := newPart(true)
	for _, test := range []struct {
		selected screen.Selection
		id, want string
	}{
		{target(jobq.StateFailed), command.Requeue, "it may run at once"},
		{target(jobq.StateFailed, jobq.StateFailed), command.Requeue, "they may run at once"},
		{target(jobq.StateRunning), command.Cancel, "its worker is asked to stop it, which cannot be undone"},
		{target(jobq.StateRunning, jobq.StateRunning), command.Cancel, "their workers are asked to stop them"},
		{target(jobq.StateAvailable), command.Cancel, "it will not run; u undoes it"},
		{target(jobq.StateAvailable, jobq.StateAvailable), command.Cancel, "they will not run; u undoes it"},
		{target(jobq.StateAvailable, jobq.StateRunning), command.Cancel, "those that wait will not run; those that run are asked to stop"},
		{target(jobq.StateFailed), command.Delete, "it is removed with its history; u brings it back"},
		{target(jobq.StateFailed), command.Delete, "if it has changed meanwhile, nothing is done"},
		{target(jobq.StateFailed, jobq.StateFailed), command.Delete, "they are removed with their history; u brings them back"},
		{target(jobq.StateFailed, jobq.StateFailed), command.Delete, "those that have changed meanwhile are left alone"},
		{screen.Selection{All: &screen.AllMatching{}}, command.Cancel, "those that run are asked to stop"},
		{screen.Selection{Entry: &monitor.AuditEntry{ID: 3, Action: jobq.ActionDelete, Done: 2}}, command.Undo, "delete , 2 jobs"},
		{screen.Selection{Entry: &monitor.AuditEntry{ID: 3, Action: jobq.ActionPause, Target: "email"}}, command.Undo, "the queue, the schedule or the settings are as they were before"},
	} {
		ask, ok := p.Actions(test.selected)[test.id].Run().(request.Ask)
		require.True(t, ok)
		require.Contains(t, strings.Join(ask.Details, "\n"), test.want)
		require.NotContains(t, strings.Join(ask.Details, "\n"), "0 jobs")
	}
}

// What an undo has come to says how the jobs are now.
func TestUndoSaysHowJobsAre(t *testing.T) {
	t.Parallel()
	job := func(id int64, after jobq.State, problem string) operator.ActedJob {
		return operator.ActedJob{ID: id, After: after, Problem: problem, Changed: problem == ""}
	}
	for want, jobs := range map[string][]operator.ActedJob{
		"undone: job 7 is failed now":                                  {job(7, jobq.StateFailed, "")},
		"undone: 2 jobs are failed now":                                {job(7, jobq.StateFailed, ""), job(8, jobq.StateFailed, "")},
		"undone: 1 job is available now, 1 job is failed now":          {job(7, jobq.StateFailed, ""), job(8, jobq.StateAvailable, "")},
		"undone: 1 job is failed now, 1 left alone: it is running now": {job(7, jobq.StateFailed, ""), job(8, jobq.StateRunning, "it is running now")},
		"undo job 7: it has changed meanwhile":                         {job(7, jobq.StateFailed, "it has changed meanwhile")},
		"undone":                                                       nil,
	} {
		require.Equal(t, want, Result{command.Undo, &operator.Acted{Jobs: jobs}, nil}.Text())
	}
}

// An error says once what was to be done.
func TestErrorsSayTheActionOnce(t *testing.T) {
	t.Parallel()
	conflict := fmt.Errorf("undo action 8: %w: queue email has had a resume meanwhile", jobq.ErrConflict)
	require.Equal(t, "undo action 8: conflict: queue email has had a resume meanwhile", Result{command.Undo, nil, conflict}.Text())
	require.Equal(t, "requeue: timed out", Result{command.Requeue, nil, jobq.ErrTimeout}.Text())
}

// No undo is offered for jobs that were only asked to stop: their workers know already.
func TestAskedToStopOffersNoUndo(t *testing.T) {
	t.Parallel()
	p, _ := newPart(false)
	stopped := operator.ActedJob{ID: 7, Before: jobq.StateRunning, After: jobq.StateRunning, Changed: true}
	told := all(t, p.Update(Result{string(jobq.ActionCancel), &operator.Acted{AuditID: 4, Jobs: []operator.ActedJob{stopped}}, nil}))
	require.Equal(t, request.Tell{Text: "cancel job 7: it is asked to stop"}, told[0])
	require.Equal(t, "there is nothing to undo", p.Actions(screen.Selection{})[command.Undo].Disabled())
	waited := operator.ActedJob{ID: 8, Before: jobq.StateAvailable, After: jobq.StateCancelled, Changed: true}
	told = all(t, p.Update(Result{string(jobq.ActionCancel), &operator.Acted{AuditID: 5, Jobs: []operator.ActedJob{stopped, waited}}, nil}))
	require.Equal(t, request.Tell{Text: "cancel: 2 jobs   u undo"}, told[0])
	require.Empty(t, p.Actions(screen.Selection{})[command.Undo].Disabled())
}
