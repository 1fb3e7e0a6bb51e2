package screen

import (
	"context"
	"errors"
	"fmt"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
)

// treeStage is the page of job 1000.
func treeStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, 60, 20, func(kit Kit) Screen { return NewJob(kit) })
	s.tell(ShowJob{1000})
	return s
}

// askedTree is what the screen tells when the tree of its job was asked for.
func (s *stage) askedTree(r *source) tea.Msg {
	s.t.Helper()
	asked, isRead := s.Actions()[command.Tree].Run().(request.Read)
	require.True(s.t, isRead)
	answer, isAnswer := asked.Ask(context.Background(), r).(tree)
	require.True(s.t, isAnswer)
	require.EqualValues(s.t, 1000, answer.id)
	return s.Update(answer)
}

// tree is what the tree of its job offers, which waits until nothing else lies over the screen.
func (s *stage) tree(graph ...monitor.GraphJob) request.Choose {
	s.t.Helper()
	later, isLater := s.askedTree(&source{graph: graph}).(request.Later)
	require.True(s.t, isLater)
	choose, isChoice := later.Overlay.(request.Choose)
	require.True(s.t, isChoice)
	return choose
}

// ofGraph is a job that waits for others.
func ofGraph(id int64, state jobq.State, after ...int64) monitor.GraphJob {
	return monitor.GraphJob{ID: id, Kind: fmt.Sprintf("k%d", id), Queue: "q", State: state, After: after}
}

// linesOf are the lines of what is offered.
func linesOf(choose request.Choose) (lines []string) {
	for _, item := range choose.Items {
		lines = append(lines, item.Text)
	}
	return lines
}

// The tree of a job has those for which it waits, and their own, and those that wait for it,
// each with a line that opens it. One to which several ways lead has what is below it once.
func TestTree(t *testing.T) {
	t.Parallel()
	s := treeStage(t)
	graph := []monitor.GraphJob{
		{ID: 10},
		ofGraph(11, jobq.StateCompleted, 10), ofGraph(20, jobq.StateFailed, 11), ofGraph(21, jobq.StateRunning, 11),
		ofGraph(1000, jobq.StateWaiting, 20, 21),
		ofGraph(2000, jobq.StateWaiting, 1000), ofGraph(2001, jobq.StateWaiting, 1000, 2000), ofGraph(2002, jobq.StateWaiting, 2001),
	}
	choose := s.tree(graph...)
	require.Equal(t, []string{
		"1000 waiting  q/k1000",
		"├ after 20 failed  q/k20",
		"│ └ after 11 completed  q/k11",
		"│   └ after 10 gone",
		"├ after 21 running  q/k21",
		"│ └ after 11 completed  q/k11  as above",
		"├ then 2000 waiting  q/k2000",
		"│ └ then 2001 waiting  q/k2001",
		"│   └ then 2002 waiting  q/k2002",
		"└ then 2001 waiting  q/k2001  as above",
	}, linesOf(choose))
	require.Len(t, choose.Notes, 1, "nothing is left out")
	require.Equal(t, request.Job{ID: 20}, choose.Items[1].Then)
	require.Equal(t, request.Tell{Text: "job 10 is gone: retention or an operator has removed it"}, choose.Items[3].Then)

	s.kit.Paint.Plain = true
	require.Equal(t, []string{"level 0: 1000 waiting  q/k1000", "level 1: after 20 failed  q/k20", "level 2: after 11 completed  q/k11"}, linesOf(s.tree(graph...))[:3])

	list := newStage(t, 60, 20, newJobs)
	require.NotEmpty(t, list.Actions()[command.Tree].Disabled(), "no job is selected")
	list.tell(list.answer(data.Page, &source{jobs: someJobs(1, jobq.StateWaiting)}))
	require.Len(t, list.tree(graph...).Items, 10)
	require.Nil(t, s.Update(tree{asked: new(base), id: 1000, jobs: graph}), "of another screen")
}

// A job that waits for none, and for which none waits, has no tree; and an error is told.
func TestNoTree(t *testing.T) {
	t.Parallel()
	s := treeStage(t)
	require.Equal(t, request.Tell{Text: "job 1000 waits for no other job, and none for it"}, s.askedTree(&source{graph: []monitor.GraphJob{ofGraph(1000, jobq.StateRunning)}}))
	require.Equal(t, request.Tell{Text: "tree: gone"}, s.askedTree(&source{err: errors.New("gone")}))
}

// The page of a job that waits for others says how to see them.
func TestTreeIsNamed(t *testing.T) {
	t.Parallel()
	s := treeStage(t)
	jobs := someJobs(1, jobq.StateWaiting)
	s.tell(s.answer(data.Job, &source{jobs: jobs}))
	require.Contains(t, s.text(), "waiting    for other jobs: <tree> shows them")
	jobs[0].State = jobq.StateScheduled
	s.tell(s.answer(data.Job, &source{jobs: jobs}))
	require.NotContains(t, s.text(), "<tree>")
}

// A tree has so many lines and levels, and says where more have been left out.
func TestTreeIsCut(t *testing.T) {
	t.Parallel()
	s := treeStage(t)
	const leftOut = "Some are left out: jobq show 1000 --graph"
	chain := []monitor.GraphJob{ofGraph(1000, jobq.StateCompleted)}
	for id := int64(1001); id <= 1000+treeDepth; id++ {
		chain = append(chain, ofGraph(id, jobq.StateWaiting, id-1))
	}
	whole := s.tree(chain...)
	require.Len(t, whole.Items, treeDepth+1)
	require.NotContains(t, whole.Notes, leftOut)
	deeper := s.tree(append(chain, ofGraph(1001+treeDepth, jobq.StateWaiting, 1000+treeDepth))...)
	require.Len(t, deeper.Items, treeDepth+1)
	require.Equal(t, whole.Items[treeDepth].Text+"  …", deeper.Items[treeDepth].Text)
	require.Contains(t, deeper.Notes, leftOut)

	many := []monitor.GraphJob{ofGraph(1000, jobq.StateCompleted)}
	for id := int64(1001); id < 1000+treeLines; id++ {
		many = append(many, ofGraph(id, jobq.StateWaiting, 1000))
	}
	require.Len(t, s.tree(many...).Items, treeLines)
	require.NotContains(t, s.tree(many...).Notes, leftOut)
	many = append(many, ofGraph(2000, jobq.StateWaiting, 1000, 1001))
	require.Len(t, s.tree(many...).Items, treeLines)
	require.Contains(t, s.tree(many...).Notes, leftOut)

	unknown := make([]int64, monitor.GraphAfterMax) // of a job with so many, there may be others
	require.NotContains(t, s.tree(ofGraph(1000, jobq.StateWaiting, unknown...), ofGraph(1001, jobq.StateWaiting, 1000)).Notes, leftOut)
	require.Contains(t, s.tree(ofGraph(1000, jobq.StateWaiting), ofGraph(1001, jobq.StateWaiting, append(unknown[1:], 1000)...)).Notes, leftOut)
}
