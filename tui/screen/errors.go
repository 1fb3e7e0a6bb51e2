package screen

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/when"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/widget"
)

// ErrorList is the screen with the errors of a day, and of the jobs that are to be tried again: jobs of a queue and kind that
// failed with the same words, the most frequent first. Below are the figures of
// the selected group and the whole error of its newest job.
type ErrorList struct {
	table
	story Story // of the example
	asked int   // goes up when the answers before are out of date
}

// errorRows are the groups.
type errorRows struct{ *data.Facts }

func (r errorRows) Len() int { return len(r.Errors.Groups) }
func (r errorRows) Name(i int) string {
	f := r.Errors.Groups[i]
	return f.Queue + "\n" + f.Kind + "\n" + f.Error
}

// NewErrors makes the screen.
func NewErrors(kit Kit) *ErrorList {
	return &ErrorList{table: table{base: base{Kit: kit}, rows: errorRows{kit.Facts}, panel: data.Errors}}
}

// The lines of the screen that are no rows.
const (
	errorsHead      = 3  // what is shown, a line, and the header
	errorsDetailMin = 4  // the selected group: a line, its figures, two lines of the error
	errorsDetailMax = 20 // a longer error is read on the page of the job
)

// detailLines are those of the selected group: half of the screen.
func (s *ErrorList) detailLines() int {
	return min(max(s.lines/2, errorsDetailMin), errorsDetailMax)
}

// SetSize gives the groups what the detail leaves.
func (s *ErrorList) SetSize(cells, lines int) {
	s.base.SetSize(cells, lines)
	s.setHeight(errorsHead, max(lines-errorsHead-s.detailLines(), 1))
}

// errorsQuestion tells a question from those before something was done.
type errorsQuestion struct{ asked int }

// Wants are the groups, and the example of the selected one.
func (s *ErrorList) Wants() []data.Want {
	wants := data.Wants(data.Errors)
	wants[0].About = errorsQuestion{s.asked}
	if f := s.selected(); f != nil {
		id := f.Example
		wants = append(wants, data.Want{Panel: data.Job, About: storyQuestion{id: id}, Ask: func(ctx context.Context, r data.Reader) (any, error) {
			return loadStory(ctx, r, id)
		}})
	}
	return wants
}

// groupCounted is how many jobs of a group there are to be requeued.
type groupCounted struct {
	match    string
	snapshot operator.BulkSnapshot
	err      error
}

// Update takes the example in, and what an action on a group is about, beside
// what tables take.
func (s *ErrorList) Update(msg tea.Msg) tea.Msg {
	switch msg := msg.(type) {
	case data.Answer:
		if story, ok := msg.Value.(Story); ok {
			s.story = story
			return nil
		}
	case Acted:
		s.asked++
		return nil
	case groupCounted:
		switch {
		case msg.err != nil:
			return request.Tell{Text: "requeue: " + ShortError(msg.err)}
		case msg.snapshot.Count == 0:
			s.asked++
			return request.Tell{Text: "requeue: no job of the group is failed any more"}
		}
		return requeueHow(request.ActOnAll{Action: jobq.ActionRequeue, Filter: msg.match, Snapshot: msg.snapshot})
	}
	return s.table.Update(msg)
}

// selected is the group under the cursor, or nil.
func (s *ErrorList) selected() *monitor.Failure {
	if len(s.Facts.Errors.Groups) == 0 {
		return nil
	}
	return &s.Facts.Errors.Groups[s.at()]
}

// match is the filter that finds the jobs of a group that have failed for good, or if none has, those
// that are to be tried again.
func match(f monitor.Failure) string {
	if f.Failed == 0 {
		return f.RetryFilter()
	}
	return f.Filter() + " age:<" + when.FormatDuration(data.ErrorsSpan)
}

// Actions are the moves, to open the jobs of the group, and to requeue them.
func (s *ErrorList) Actions() map[string]Action {
	actions := s.moves()
	actions[command.Open] = Action{Disabled: s.noGroup, Run: func() tea.Msg {
		if f := s.selected(); f != nil {
			return request.Jobs{Match: match(*f)}
		}
		return nil
	}}
	actions[command.Requeue] = Action{Disabled: s.noFailed, Run: s.requeue}
	return actions
}

func (s *ErrorList) noGroup() string {
	if s.selected() == nil {
		return "no job has failed"
	}
	return ""
}

// noFailed says why nothing of the group can be requeued.
func (s *ErrorList) noFailed() string {
	if f := s.selected(); f != nil && f.Failed == 0 {
		return "no job of the group has failed for good: they are to be tried again"
	}
	return s.noGroup()
}

// requeue counts the jobs of the group first: what is counted now is what the
// action will be about.
func (s *ErrorList) requeue() tea.Msg {
	f := s.selected()
	if f == nil {
		return nil
	}
	text := match(*f)
	return request.Read{Ask: func(ctx context.Context, r data.Reader) tea.Msg {
		snapshot, err := r.BulkSnapshot(ctx, jobq.ActionRequeue, jobq.Filter{Match: text})
		return groupCounted{text, snapshot, err}
	}}
}

// How many jobs of a group are requeued as a sample, and how many a second of all unless told otherwise.
const (
	sampleMax  = 10
	ratePerSec = 10
)

// requeueHow offers to try a sample first, or to requeue the jobs of a group slowly. A small group is asked about as it is.
func requeueHow(all request.ActOnAll) tea.Msg {
	if all.Snapshot.Count <= sampleMax {
		return all
	}
	sample := all
	sample.Max = sampleMax
	jobs := format.OrMore(all.Snapshot.Count, all.Snapshot.More)
	return request.Later{Overlay: request.Choose{
		Title: "requeue " + jobs + " jobs", Hint: "enter or a number: choose   esc: do nothing",
		Items: []request.Item{
			{Text: fmt.Sprintf("a sample: the newest %d, to see what becomes of them", sampleMax), Then: sample},
			{Text: "all " + jobs + ", so many a second", Then: requeueRate(all)},
			{Text: "all " + jobs + " at once", Then: all},
		},
	}}
}

// requeueRate asks how many jobs a second are to be requeued.
func requeueRate(all request.ActOnAll) tea.Msg {
	return request.Prompt{
		Title: "requeue " + format.OrMore(all.Snapshot.Count, all.Snapshot.More) + " jobs, so many a second", Note: "jobs a second", Text: format.PerSecond(ratePerSec),
		Accept: func(text string) (_ tea.Msg, err error) {
			slow := all
			slow.Rate, err = format.ParsePerSecond(text)
			return slow, err
		},
	}
}

// Selected is what can be copied and written to a file.
func (s *ErrorList) Selected() Selection {
	selection := Selection{Noun: "errors", Rows: func() []json.RawMessage { return encoded(s.Facts.Errors.Groups) }}
	if f := s.selected(); f != nil {
		selection.Cursor, selection.Match = f.Example, match(*f)
		selection.List = "list " + format.ShellWord(selection.Match)
	}
	return selection
}

// View draws the groups and, below, the selected one with an example.
func (s *ErrorList) View() View {
	if !s.Facts.Known(data.Errors) {
		return View{Lines: []string{"", " " + s.waiting(data.Errors)}, Cursor: -1}
	}
	lines := []string{" " + s.head(), s.Paint.Rule(s.cells)}
	if s.selected() == nil {
		return View{Lines: lines, Cursor: -1}
	}
	columns := s.columns()
	lines = append(lines, s.Paint.Header(columns, s.cells))
	first, end := s.list.Shown(s.rows)
	for i := first; i < end; i++ {
		lines = append(lines, s.Paint.Row(columns, s.cells, s.marks(i == s.at()), s.row(s.Facts.Errors.Groups[i])))
	}
	for range s.list.Height() - (end - first) {
		lines = append(lines, "")
	}
	return View{Lines: append(lines, s.detail(*s.selected())...), Cursor: s.cursor()}
}

func (s *ErrorList) columns() []widget.Column {
	queue, kind := 12, 14
	if s.wide() {
		queue, kind = 18, 20
	}
	return widget.ColumnsFor([]widget.Column{
		widget.Right("FAILED", 7, 0), widget.Right("RETRY", 6, 0), widget.Left("QUEUE", queue, 1).UpTo(30), widget.Left("KIND", kind, 0).UpTo(32), widget.Right("FIRST", 6, 3), widget.Right("LAST", 6, 2),
		widget.Right("EXAMPLE", 11, 4), widget.Left("ERROR", 0, 0).UpTo(60),
	}, s.cells-2, 20)
}

func (s *ErrorList) row(f monitor.Failure) map[string]string {
	now := s.Paint.Now()
	row := map[string]string{
		"FAILED": s.failed(f), "RETRY": s.retrying(f), "QUEUE": widget.Clean(f.Queue), "KIND": widget.Clean(f.Kind), "FIRST": "-", "LAST": "-",
		"EXAMPLE": fmt.Sprint(f.Example), "ERROR": s.firstWords(f),
	}
	if f.Failed > 0 {
		row["FIRST"], row["LAST"] = format.Ago(now.Sub(f.First)), format.Ago(now.Sub(f.Last))
	}
	return row
}

// errorMax is how many characters of an error make a group: jobq.error_pattern has
// the same.
const errorMax = 60

// firstWords are those of the group's error, with a mark where the error goes on.
func (b *base) firstWords(f monitor.Failure) string {
	text := widget.Clean(f.Error)
	if utf8.RuneCountInString(f.Error) >= errorMax {
		text += b.Paint.More
	}
	return text
}

// failed is how many jobs of the group have failed for good, and whether there may be more; retrying is
// how many are to be tried again.
func (s *ErrorList) failed(f monitor.Failure) string {
	return format.OrMore(f.Failed, s.Facts.Errors.More)
}

func (s *ErrorList) retrying(f monitor.Failure) string {
	return format.OrMore(f.Retrying, s.Facts.Errors.MoreRetrying)
}

// detail is the group in figures, and the error of its newest job as far as there
// is room.
func (s *ErrorList) detail(f monitor.Failure) []string {
	now := s.Paint.Now()
	figures := " " + s.figures(f, now)
	if f.Failed > 0 {
		figures += "; " + s.Key(command.Requeue) + " requeues"
	}
	lines := []string{s.Paint.Rule(s.cells, widget.Clean(f.Queue)+"/"+widget.Clean(f.Kind)), figures}
	if !s.story.of(f.Example) {
		return append(lines, fmt.Sprintf(" job %d  %s", f.Example, s.waiting(data.Job)))
	}
	title := fmt.Sprintf(" job %d, %s, failed with", f.Example, s.stateText(s.story.job))
	if s.story.job.State == jobq.StateFailed {
		title = fmt.Sprintf(" job %d failed %s with", f.Example, format.When(format.Since(s.story.job), now))
	}
	lines = append(lines, title)
	room := s.detailLines() - len(lines)
	text := s.exampleError(room)
	if len(text) > room {
		left := len(text) - room + 1
		text = append(text[:max(room-1, 0)], s.Paint.Muted.Render(fmt.Sprintf("%s %s: they are on the page of the job", s.Paint.More, format.Count(int64(left), "more line"))))
	}
	for _, line := range text {
		lines = append(lines, "   "+line)
	}
	return lines
}

// figures say how many jobs of the group have failed, and when, and how many are to be tried again.
func (s *ErrorList) figures(f monitor.Failure, now time.Time) string {
	var figures []string
	if f.Failed > 0 {
		jobs := s.failed(f) + " jobs"
		if f.Failed == 1 && !s.Facts.Errors.More {
			jobs = "1 job"
		}
		figures = append(figures, fmt.Sprintf("%s failed, the first %s, the last %s", jobs, format.When(f.First, now), format.When(f.Last, now)))
	}
	if f.Retrying > 0 {
		figures = append(figures, s.retrying(f)+" retrying")
	}
	return strings.Join(figures, "; ")
}

// exampleError is the whole error of the example, in lines of the width of the
// screen. Of one that is far too long for the room, its own lines beyond that are
// not broken.
func (s *ErrorList) exampleError(room int) (lines []string) {
	text := s.story.job.LastError
	if last := len(s.story.runs) - 1; last >= 0 && s.story.runs[last].Error != "" {
		text = s.story.runs[last].Error // of which the job keeps only the beginning and the end
	}
	text = strings.ReplaceAll(strings.TrimRight(printable.Text(text), "\n"), "\t", "    ")
	for line := range strings.SplitSeq(text, "\n") {
		parts := []string{line}
		if len(lines) < room {
			parts = strings.Split(ansi.Hardwrap(line, max(s.cells-4, 1), true), "\n")
		}
		for _, part := range parts {
			lines = append(lines, s.Paint.Error.Render(part))
		}
	}
	return lines
}

// head says how many jobs have failed, and how much of that is listed.
func (s *ErrorList) head() string {
	errors := s.Facts.Errors
	var jobs, retrying int64
	for _, f := range errors.Groups {
		jobs += f.Failed
		retrying += f.Retrying
	}
	span := format.Ago(data.ErrorsSpan)
	var head string
	switch {
	case errors.More:
		head = fmt.Sprintf("%s jobs failed in %s: the last %s were counted", format.CappedAt(jobs, jobs), span, format.Number(jobq.CountMax))
	case jobs == 0:
		head = "no job has failed in " + span
	default:
		head = fmt.Sprintf("%s failed in %s", format.Count(jobs, "job"), span)
	}
	if retrying > 0 {
		head += fmt.Sprintf("; %s retrying", format.OrMore(retrying, errors.MoreRetrying))
	}
	if first, end := s.list.Shown(s.rows); end-first < len(errors.Groups) {
		head += "; groups " + s.position()
	}
	if errors.Left > 0 {
		listed := int64(len(errors.Groups))
		head += fmt.Sprintf("; %s of %s groups listed", format.Number(listed), format.Number(listed+errors.Left))
	}
	return head
}

// Told is the list in words.
func (s *ErrorList) Told() []string {
	lines := []string{s.head()}
	now := s.Paint.Now()
	for i, f := range s.Facts.Errors.Groups {
		lines = append(lines, toldRow(i, len(s.Facts.Errors.Groups), i == s.at(), fmt.Sprintf("%s/%s: %s; such as %d: %s",
			widget.Clean(f.Queue), widget.Clean(f.Kind), s.figures(f, now), f.Example, s.firstWords(f))))
	}
	return lines
}
