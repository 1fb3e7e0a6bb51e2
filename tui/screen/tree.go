package screen

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// How much of a graph is drawn. What is below can be opened, and has a tree of its own.
const (
	treeDepth = 10
	treeLines = 500
)

// tree is the answer to which jobs a job waits for, and which wait for it.
type tree struct {
	asked *base // by which screen: all of them are told
	id    int64
	jobs  []monitor.GraphJob
	err   error
}

// askTree asks the database with which jobs a job belongs together.
func (b *base) askTree(id int64) tea.Msg {
	return request.Read{Ask: func(ctx context.Context, r data.Reader) tea.Msg {
		jobs, err := r.Graph(ctx, id)
		return tree{b, id, jobs, err}
	}}
}

// tellTree offers these jobs over the screen, to open one. It waits while another overlay is
// open. What another screen has asked is not for this one.
func (b *base) tellTree(answer tree) tea.Msg {
	switch {
	case answer.asked != b:
		return nil
	case answer.err != nil:
		return request.Tell{Text: "tree: " + ShortError(answer.err)}
	case len(answer.jobs) < 2:
		return request.Tell{Text: fmt.Sprintf("job %d waits for no other job, and none for it", answer.id)}
	}
	t := newBranches(b, answer.id, answer.jobs)
	t.add(answer.id, 0, "", "")
	t.grow(answer.id, 1, "", treeAfter, treeThen)
	choose := request.Choose{
		Title: fmt.Sprintf("Tree of job %d", answer.id),
		Hint:  "enter or a number: open   esc: leave", Items: t.items,
		Notes: []string{"after: the one above waits for it   then: it waits for the one above"},
	}
	if t.isCut() {
		choose.Notes = append(choose.Notes, fmt.Sprintf("Some are left out: jobq show %d --graph", answer.id))
	}
	return request.Later{Overlay: choose}
}

// branches are the lines of a tree that is made of a graph. From the job there are two ways: to
// its parents and their parents, and to its children and their children. A job to which several
// lead has its own branches in the first place alone.
type branches struct {
	*base
	root     int64
	jobs     map[int64]monitor.GraphJob
	children map[int64][]int64
	grown    map[branch]bool
	drawn    map[int64]bool
	items    []request.Item
}

func newBranches(b *base, root int64, jobs []monitor.GraphJob) *branches {
	t := &branches{base: b, root: root, jobs: map[int64]monitor.GraphJob{}, children: map[int64][]int64{}, grown: map[branch]bool{}, drawn: map[int64]bool{}}
	for _, job := range jobs {
		t.jobs[job.ID] = job
		for _, parent := range job.After {
			t.children[parent] = append(t.children[parent], job.ID)
		}
	}
	return t
}

// branch is what is below a job in one way.
type branch struct {
	id  int64
	way string
}

// The ways from a job to others.
const (
	treeAfter = "after" // to those for which it waits
	treeThen  = "then"  // to those that wait for it
)

// next are the jobs to which a way leads from a job.
func (t *branches) next(id int64, way string) []int64 {
	if way == treeThen {
		return t.children[id]
	}
	return slices.DeleteFunc(slices.Clone(t.jobs[id].After), func(parent int64) bool {
		_, known := t.jobs[parent]
		return !known
	})
}

// isCut says that there are jobs, or that there may be, which have no line.
func (t *branches) isCut() bool {
	for id, job := range t.jobs {
		after := monitor.GraphAfterMax
		if id == t.root {
			after = monitor.GraphMax
		}
		if !t.drawn[id] || len(job.After) >= after {
			return true
		}
	}
	return len(t.jobs) >= monitor.GraphMax
}

// grow adds what is below a job in these ways.
func (t *branches) grow(id int64, depth int, indent string, ways ...string) {
	for i, way := range ways {
		below := t.next(id, way)
		othersFollow := i+1 < len(ways) && len(t.next(id, ways[i+1])) > 0
		for j, other := range below {
			fork, side := t.Paint.Fork+" ", t.Paint.Side+" "
			if j == len(below)-1 && !othersFollow {
				fork, side = t.Paint.Last+" ", "  "
			}
			if !t.add(other, depth, indent+fork, way) {
				return
			}
			if at := (branch{other, way}); !t.grown[at] && depth < treeDepth {
				t.grown[at] = true
				t.grow(other, depth+1, indent+side, way)
			}
		}
	}
}

// add adds the line of a job, and says whether there was room for it.
func (t *branches) add(id int64, depth int, indent, way string) bool {
	if len(t.items) == treeLines {
		return false
	}
	t.drawn[id] = true
	job := t.jobs[id]
	if t.Paint.Plain {
		indent = fmt.Sprintf("level %d: ", depth)
	}
	text := strings.TrimLeft(fmt.Sprintf("%s %d ", way, id), " ") + t.Paint.State(job.State).Render(cmp.Or(string(job.State), "gone"))
	if job.Kind != "" {
		text += fmt.Sprintf("  %s/%s", widget.Clean(job.Queue), widget.Clean(job.Kind))
	}
	if way != "" && len(t.next(id, way)) > 0 {
		switch {
		case t.grown[branch{id, way}]:
			text += "  as above"
		case depth == treeDepth:
			text += "  " + t.Paint.More // opening it shows them
		}
	}
	item := request.Item{Text: t.Paint.Muted.Render(indent) + text, Then: request.Job{ID: id}}
	if job.State == "" {
		item.Then = request.Tell{Text: fmt.Sprintf("job %d is gone: retention or an operator has removed it", id)}
	}
	t.items = append(t.items, item)
	return true
}
