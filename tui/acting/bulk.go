package acting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/tui/command"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// bulkRun is an action by filter that is under way.
type bulkRun struct {
	action   jobq.Action
	total    int64 // how many jobs it is about; 0 when that is not known
	progress operator.BulkProgress
	stop     context.CancelFunc
	steps    <-chan bulkStep
}

// actOnAll asks for the number of jobs, and then acts on all that matched, or as many of them as it may.
func (p *Part) actOnAll(all request.ActOnAll) tea.Msg {
	count, more := all.Snapshot.Count, all.Snapshot.More
	title := fmt.Sprintf("%s %s jobs that match", all.Action, format.Number(count))
	if more {
		title = fmt.Sprintf("%s all jobs that match, more than %s", all.Action, format.Number(count))
	}
	details := []string{
		"filter    " + filterOrAll(all.Filter),
		"counted   " + all.Snapshot.At.UTC().Format("15:04:05Z") + "; jobs that came later are left alone",
		"effect    " + p.effectOf(all.Action, anyJobs),
	}
	var limits []string
	if all.Max > 0 {
		title = fmt.Sprintf("%s %d of %s jobs that match, the newest", all.Action, all.Max, format.OrMore(count, more))
		limits = append(limits, fmt.Sprintf("--max %d", all.Max))
		count, more = min(count, int64(all.Max)), more && count < int64(all.Max)
	}
	if all.Rate > 0 {
		title += ", " + format.PerSecond(all.Rate)
		limits = append(limits, "--rate "+format.PerSecond(all.Rate))
	}
	if line := p.Place().Program.Bulk(all.Action, all.Filter, limits...); line != "" {
		details = append(details, "as a command   "+widget.Clean(line))
	}
	typed := TypedCount(count, all.Action)
	if more { // a number would be wrong
		typed.Text, typed.Meaning, count = "all", "which are more than "+format.Number(count)+" jobs", 0
	}
	return request.Ask{
		Title: title, Details: details, Typed: typed,
		Yes: request.Change{Verb: string(all.Action), Do: startBulk{
			operator.BulkParams{Action: all.Action, Filter: jobq.Filter{Match: all.Filter}, Snapshot: all.Snapshot, Max: all.Max, RatePerSecond: all.Rate}, count,
		}},
	}
}

func (p *Part) resumeAction(entry *monitor.AuditEntry) screen.Action {
	return screen.Action{
		Disabled: func() string {
			if entry == nil {
				return "nobody has acted yet"
			}
			return entry.NoResume()
		},
		Run: func() tea.Msg { return p.resumeBulk(*entry) },
	}
}

// resumeBulk asks, and then goes on with an action that was stopped.
func (p *Part) resumeBulk(entry monitor.AuditEntry) tea.Msg {
	place := p.Place()
	details := []string{
		"filter    " + filterOrAll(entry.Target),
		"snapshot  " + entry.SnapshotAt.UTC().Format("2006-01-02 15:04:05Z") + ", when it began: later jobs are left alone",
		fmt.Sprintf("so far    %s changed, %s left alone, by %s", format.Number(int64(entry.Done)), format.Number(int64(entry.Refused)), widget.Clean(entry.Actor)),
		"effect    " + p.effectOf(entry.Action, anyJobs),
		"as a command   " + widget.Clean(place.Program.Resume(entry.ID)),
	}
	if entry.Max > 0 {
		details = slices.Insert(details, 3, fmt.Sprintf("at most   %s, as it began: what is left of them, or as many again", format.Number(int64(entry.Max))))
	}
	ask := request.Ask{
		Title: fmt.Sprintf("go on with action %d, %s", entry.ID, entry.Action), Details: details,
		Yes: request.Change{Verb: command.Resume, Do: startBulk{operator.BulkParams{Action: entry.Action, Resume: entry.ID}, 0}},
	}
	if place.Confirm {
		ask.Typed = request.Typed{Text: strconv.FormatInt(entry.ID, 10), Meaning: "the number of the action", Effect: "go on with it"}
	}
	return ask
}

func filterOrAll(filter string) string {
	if filter == "" {
		return "none: all jobs"
	}
	return widget.Clean(filter)
}

// startBulk begins an action by filter that was confirmed.
type startBulk struct {
	params operator.BulkParams
	total  int64
}

// beginBulk runs the action apart from the UI, which hears of each batch.
func (p *Part) beginBulk(msg startBulk) tea.Msg {
	ctx, stop := context.WithCancel(context.Background())
	steps := make(chan bulkStep, 1)
	run := &bulkRun{action: msg.params.Action, total: msg.total, stop: stop, steps: steps}
	p.bulk = run
	writer := p.Place().Writer
	work := func() tea.Msg {
		defer stop()
		params := msg.params
		params.OnBatch = func(progress operator.BulkProgress) {
			select {
			case steps <- bulkStep{run: run, progress: progress}:
			default: // the one before is yet to be shown; the next one says more
			}
		}
		progress, err := writer.Bulk(ctx, params)
		close(steps)
		return bulkStep{run, progress, true, err}
	}
	return request.All{
		request.Progress{
			Title: string(run.action), Total: run.total,
			Hint: fmt.Sprintf("esc: stop after this batch; %s on the audit screen goes on", p.Key(command.Resume)),
		},
		request.Begin{Run: work},
		request.Run{Run: run.listen()},
	}
}

// listen waits for the next step.
func (b *bulkRun) listen() tea.Cmd {
	steps := b.steps
	return func() tea.Msg {
		step, open := <-steps
		if !open {
			return nil
		}
		return step
	}
}

// bulkStep is how far an action by filter has come; done with the last one.
type bulkStep struct {
	run      *bulkRun
	progress operator.BulkProgress
	done     bool
	err      error
}

func (p *Part) stepped(msg bulkStep) tea.Msg {
	run := p.bulk
	if run == nil || msg.run != run { // the last step of one that has ended already
		return nil
	}
	if msg.progress.Done >= run.progress.Done {
		run.progress = msg.progress
	}
	step := request.Step{Done: int64(run.progress.Done), Refused: int64(run.progress.Refused), Ended: msg.done}
	if !msg.done {
		return request.All{step, request.Run{Run: run.listen()}}
	}
	p.bulk = nil
	return request.All{
		request.Tell{Text: p.bulkEnded(msg)},
		request.Renew{Panels: []data.Panel{data.Page, data.Visible, data.Count, data.Audit}},
		request.Screens{Msg: screen.Acted{Acted: &operator.Acted{}}}, // the selection is done with
		step,
	}
}

// bulkEnded says what came of the action, which is the last one now.
func (p *Part) bulkEnded(msg bulkStep) string {
	text := fmt.Sprintf("%s: %s changed, %d left alone", msg.run.action, format.Count(int64(msg.progress.Done), "job"), msg.progress.Refused)
	if problems := msg.progress.Problems; len(problems) > 0 {
		text += fmt.Sprintf(" (job %d: %s)", problems[0].ID, problems[0].Problem)
	}
	switch {
	case errors.Is(msg.err, context.Canceled):
		text += fmt.Sprintf("; stopped, %s on the audit screen goes on with action %d", p.Key(command.Resume), msg.progress.AuditID)
	case msg.err != nil:
		text += ": " + screen.ShortError(msg.err)
	}
	if msg.progress.Done > 0 {
		p.lastAudit = msg.progress.AuditID
		text += p.undoHint()
	}
	return text
}

// StopBulk stops the action by filter that is under way, if there is one, after its
// batch.
func (p *Part) StopBulk() {
	if p.bulk != nil {
		p.bulk.stop()
	}
}

// Bulk tells how far the action by filter is that is under way; empty for none.
func (p *Part) Bulk() string {
	if p.bulk == nil {
		return ""
	}
	done := format.Number(int64(p.bulk.progress.Done))
	if p.bulk.total > 0 {
		done += " of " + format.Number(p.bulk.total)
	}
	return fmt.Sprintf("%s: %s done; esc stops", p.bulk.action, done)
}
