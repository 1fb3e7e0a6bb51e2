package screen

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// JobPage is one job in detail: what it is, its runs, and their output.
type JobPage struct {
	base
	id    int64
	asked int // makes a question a new one
	story Story
	spare Story // the one seen last of another job

	run     int64 // the lease token of the chosen run; 0 for the newest, also when another begins
	output  bool  // full screen
	focused bool  // moving scrolls the output, and does not choose a run
	live    live  // what the run under way has written
	search  string
	found   int // the line of the output that was gone to

	page   widget.Pager // of what is above the output
	pager  widget.Pager // of the output
	runsAt int          // the line of the page with the newest run
}

// ShowJob shows a job.
type ShowJob struct{ ID int64 }

// NewJob makes the screen.
func NewJob(kit Kit) *JobPage {
	return &JobPage{base: base{Kit: kit}, page: widget.NewPager(false), pager: widget.NewPager(true)}
}

// outputMin is how many lines of output are seen below the page, at least.
const outputMin = 3

// SetSize lays the page out anew.
func (s *JobPage) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.arrange()
}

// arrange divides the screen between the page and the output.
func (s *JobPage) arrange() {
	if s.story.job == nil {
		return
	}
	top, runsAt := s.pageLines()
	s.runsAt = runsAt
	above := min(len(top), max(s.lines-1-outputMin, 1))
	if s.output {
		above = 0
	}
	s.page.SetSize(s.cells, above)
	s.page.SetLines(top, 0)
	s.pager.SetSize(s.cells, s.lines-1-above)
}

// Update takes a message in.
func (s *JobPage) Update(msg tea.Msg) tea.Msg {
	defer s.arrange()
	switch msg := msg.(type) {
	case data.Answer:
		s.take(msg)
	case data.Feed:
		for _, event := range msg.Events {
			if s.story.apply(event, msg.At) {
				s.asked++
			}
		}
	case ShowJob:
		s.turnTo(msg.ID)
	case Acted:
		for _, job := range msg.Jobs {
			if s.story.of(job.ID) && job.Problem == "" && job.After != "" {
				s.story.job.State = job.After
			}
		}
		s.asked++
	case reasons:
		return s.tellWhy(msg)
	case tree:
		return s.tellTree(msg)
	case searched:
		return s.searchFor(string(msg))
	case Scroll:
		return s.scroll(msg.By)
	case Pick:
		return noRow(msg.Row)
	case Back:
		if s.output {
			s.output = false
			return request.Done{}
		}
	}
	return nil
}

// turnTo makes another job the one in detail. What is known of it is shown until
// the answer comes.
func (s *JobPage) turnTo(id int64) {
	if s.id == id {
		return
	}
	story := s.spare
	if !story.of(id) {
		story = Story{}
	}
	*s = JobPage{base: s.base, id: id, asked: s.asked, story: story, page: widget.NewPager(false), pager: widget.NewPager(true), found: -1}
	s.showOutput(0)
}

// take takes the job in, and adds what its program has written to what is known
// of the same run.
func (s *JobPage) take(answer data.Answer) {
	story, ok := answer.Value.(Story)
	switch {
	case !ok:
	case story.job.ID != s.id:
		s.spare = story
	case answer.About != any(s.question()): // the preview's: it has no output
		if s.story.job == nil {
			s.story = story
		}
	default:
		was := s.story
		s.story = story
		gone := s.live.take(story)
		if was.running() > story.running() && s.run == 0 {
			s.pager = widget.NewPager(s.pager.Follows()) // the record takes the place of what was followed
		}
		s.showOutput(gone)
	}
}

// showOutput sets what the pager shows, of whose beginning so many lines are gone.
func (s *JobPage) showOutput(gone int) {
	s.pager.SetLines(s.outputText(), gone)
	s.arrange()
}

func (s *JobPage) question() storyQuestion { return storyQuestion{s.id, true, s.asked} }

// Wants are the job and, while it waits, what may be the reason for that.
func (s *JobPage) Wants() []data.Want {
	id, after, codec := s.id, s.live.last, s.Codec
	wants := []data.Want{{Panel: data.Job, About: s.question(), Ask: func(ctx context.Context, r data.Reader) (any, error) {
		return loadOutput(ctx, r, id, after, codec)
	}}}
	if s.story.job != nil && s.story.job.State == jobq.StateAvailable {
		wants = append(wants, data.Wants(data.Queues, data.Workers, data.Kinds)...)
	}
	return wants
}

// Selected is the job.
func (s *JobPage) Selected() Selection {
	selection := Selection{Cursor: s.id, Place: ShowJob{s.id}, Noun: "jobs", Rows: func() []json.RawMessage { return nil }}
	if job := s.story.job; s.story.of(s.id) {
		selection.Job, selection.Steps = job, s.story.steps
		selection.Targets = []operator.Target{{ID: job.ID, State: job.State, LeaseToken: job.LeaseToken}}
		selection.Rows = func() []json.RawMessage { return encoded([]*jobq.Job{job}) }
	}
	return selection
}

// Actions are what the page does for commands.
func (s *JobPage) Actions() map[string]Action {
	full := func() tea.Msg {
		s.output = !s.output
		s.arrange()
		return nil
	}
	actions := moves(s.move, s.scroll, s.pageOf, s.toTop, s.toEnd)
	neighbour := func(by int) Action {
		return Action{Run: func() tea.Msg { return request.Neighbour{ID: s.id, By: by} }}
	}
	maps.Copy(actions, map[string]Action{
		command.Open:          {Run: full},
		command.Output:        {Run: full},
		command.Why:           {Run: func() tea.Msg { return s.askWhy(s.id) }},
		command.Tree:          {Run: func() tea.Msg { return s.askTree(s.id) }},
		"newer":               neighbour(-1),
		"older":               neighbour(1),
		command.Filter:        {Run: s.askSearch},
		command.NextMatch:     {Disabled: s.noSearch, Run: func() tea.Msg { return s.findMatch(1) }},
		command.PreviousMatch: {Disabled: s.noSearch, Run: func() tea.Msg { return s.findMatch(-1) }},
		command.Panel: {Run: func() tea.Msg {
			s.focused = !s.focused
			return nil
		}},
	})
	return actions
}

// scrolls says whether moving scrolls the output.
func (s *JobPage) scrolls() bool { return s.output || s.focused }

// pageOf is how much of what moves is visible.
func (s *JobPage) pageOf() int {
	if s.scrolls() {
		return s.pager.Height()
	}
	return s.page.Height()
}

// move chooses a run so many rows below, or scrolls the output.
func (s *JobPage) move(by int) tea.Msg {
	if s.scrolls() {
		return s.scroll(by)
	}
	defer s.arrange()
	s.choose(min(max(s.runRow()+by, 0), s.lastRow()))
	return nil
}

// scroll scrolls the output or the page, and leaves the run that is chosen.
func (s *JobPage) scroll(by int) tea.Msg {
	defer s.arrange()
	if s.scrolls() {
		s.pager.Scroll(by)
	} else {
		s.page.Scroll(by)
	}
	return nil
}

// lastRow is the row of the oldest run.
func (s *JobPage) lastRow() int { return max(len(s.story.runs)-1+s.story.running(), 0) }

// runRow is the row of the chosen run: 0 is the newest. Example: of three runs the
// second is in row 1, and in row 2 when a fourth has begun.
func (s *JobPage) runRow() int {
	at := slices.IndexFunc(s.story.runs, func(run monitor.Attempt) bool { return run.LeaseToken == s.run })
	if s.run == 0 || at < 0 {
		return 0
	}
	return len(s.story.runs) - 1 - at + s.story.running()
}

// choose makes the run in a row the one whose output is shown.
func (s *JobPage) choose(row int) {
	if row != s.runRow() {
		s.run, s.found = 0, -1
		if at := len(s.story.runs) - 1 - row + s.story.running(); row > 0 && at >= 0 {
			s.run = s.story.runs[at].LeaseToken
		}
		s.pager = widget.NewPager(true)
		s.showOutput(0)
	}
	s.page.Reveal(s.runsAt + min(row, runsShown-1))
}

func (s *JobPage) toTop() tea.Msg {
	if s.scrolls() {
		s.pager.Top()
		return nil
	}
	s.choose(0)
	s.page.Top()
	return nil
}

func (s *JobPage) toEnd() tea.Msg {
	if s.scrolls() {
		s.pager.End()
		return nil
	}
	s.choose(s.lastRow())
	return nil
}

// View draws the page and the output.
func (s *JobPage) View() View {
	view := View{Head: s.head(), Cursor: -1}
	switch {
	case s.story.job == nil:
		view.Lines = []string{"", " " + s.waiting(data.Job)}
	case s.output:
		view.Lines = append([]string{s.Paint.Rule(s.cells, s.outputTitle())}, s.outputLines()...)
	default:
		lines, _ := s.pageLines() // what the clock says has changed since they were laid out
		view.Lines = append(view.Lines, s.page.Visible(lines)...)
		view.Lines = append(view.Lines, s.Paint.Rule(s.cells, s.outputTitle()))
		view.Lines = append(view.Lines, s.outputLines()...)
	}
	return view
}

// Told is what the job is, what happened to it, and the end of what its run has
// written.
func (s *JobPage) Told() []string {
	job := s.story.job
	if job == nil {
		return []string{s.waiting(data.Job)}
	}
	lines := append([]string{"Job " + s.toldOne(job)}, s.properties(job)...)
	lines = append(lines, s.toldSteps()...)
	for _, moment := range s.story.moments() {
		lines = append(lines, s.Paint.Clock(moment.at)+" "+moment.text)
	}
	return append(append(lines, s.outputTitle()), s.outputLines()...)
}

// noSearch says why there is no next match.
func (s *JobPage) noSearch() string {
	if s.search == "" {
		return "there is no search: " + s.Key(command.Filter) + " begins one"
	}
	return ""
}

// searched is what the operator looks for in the output.
type searched string

// askSearch lets the operator type what to look for in the run's output.
func (s *JobPage) askSearch() tea.Msg {
	return request.Prompt{
		Title: "Search the output", Text: s.search,
		Accept: func(text string) (tea.Msg, error) { return searched(text), nil },
	}
}

// searchFor looks for a text in the output; none ends the search.
func (s *JobPage) searchFor(text string) tea.Msg {
	s.search, s.found, s.output = text, -1, true
	s.arrange()
	if text == "" {
		s.pager.End()
		return nil
	}
	return s.findMatch(1)
}

// findMatch goes to the next line with the searched text, or the previous one,
// and round at the ends.
func (s *JobPage) findMatch(by int) tea.Msg {
	place, count, line := nextMatch(s.pager.Lines(), s.search, s.found, by)
	if count == 0 {
		return request.Tell{Text: "search: nothing in the output matches " + widget.Clean(s.search)}
	}
	s.found, s.output = line, true
	s.arrange()
	s.pager.Show(line)
	return request.Tell{Text: fmt.Sprintf("match %d of %d", place+1, count)}
}
