package tui

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	tea "charm.land/bubbletea/v2"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/data"
	"github.com/jobq-dev/jobq/tui/overlay"
	"github.com/jobq-dev/jobq/tui/request"
	"github.com/jobq-dev/jobq/tui/screen"
	"github.com/jobq-dev/jobq/tui/widget"
)

// bulkRun is a bulk action under way.
type bulkRun struct {
	action   jobq.Action
	total    int64 // how many it is about; 0 when that is not known
	progress jobq.BulkProgress
	stop     context.CancelFunc
	steps    <-chan bulkMsg
}

// actOnAll asks for the number of jobs, and then acts on all that matched.
func (m *Model) actOnAll(action jobq.Action, all *screen.AllMatching) tea.Cmd {
	count := all.Snapshot.Count
	details := []string{
		"filter    " + filterOrAll(all.Filter),
		"counted   " + all.Snapshot.At.UTC().Format("15:04:05Z") + "; jobs that came later are left alone",
		"effect    " + m.effectOf(action),
	}
	if command := m.bulkCommand(action, all.Filter); command != "" {
		details = append(details, "as a command   "+widget.Clean(command))
	}
	return m.ask(fmt.Sprintf("%s %s jobs that match", action, format.Capped(count)), details, typedCount(count, action), func() tea.Msg {
		return startBulkMsg{jobq.BulkParams{Action: action, Filter: jobq.Filter{Match: all.Filter}, Snapshot: all.Snapshot}, count}
	})
}

func noResume(m *Model) string {
	entry := m.current().Selected().Entry
	if entry == nil {
		return "nobody has acted yet"
	}
	return entry.NoResume()
}

// resumeBulk asks, and then goes on with the action under the cursor.
func (m *Model) resumeBulk() tea.Cmd {
	entry := *m.current().Selected().Entry
	details := []string{
		"filter    " + filterOrAll(entry.Target),
		"snapshot  " + entry.SnapshotAt.UTC().Format("2006-01-02 15:04:05Z") + ", when it began: later jobs are left alone",
		fmt.Sprintf("so far    %s changed, %s left alone, by %s", format.Number(int64(entry.Done)), format.Number(int64(entry.Refused)), widget.Clean(entry.Actor)),
		"effect    " + m.effectOf(entry.Action),
		"as a command   " + widget.Clean(m.resumeCommand(entry)),
	}
	if entry.Max > 0 {
		details = slices.Insert(details, 3, fmt.Sprintf("at most   %s, as it began: what is left of them, or as many again", format.Number(int64(entry.Max))))
	}
	var answer request.Typed
	if m.env.confirm {
		answer = request.Typed{Text: strconv.FormatInt(entry.ID, 10), Meaning: "the number of the action", Effect: "go on with it"}
	}
	return m.ask(fmt.Sprintf("go on with action %d, %s", entry.ID, entry.Action), details, answer, func() tea.Msg {
		return startBulkMsg{jobq.BulkParams{Action: entry.Action, Resume: entry.ID}, 0}
	})
}

func filterOrAll(filter string) string {
	if filter == "" {
		return "none: all jobs"
	}
	return widget.Clean(filter)
}

// startBulkMsg begins a bulk action that was confirmed.
type startBulkMsg struct {
	params jobq.BulkParams
	total  int64
}

// apply runs the action apart from the model, which hears of each batch.
func (msg startBulkMsg) apply(m *Model) tea.Cmd {
	ctx, stop := context.WithCancel(context.Background())
	steps := make(chan bulkMsg, 1)
	run := &bulkRun{action: msg.params.Action, total: msg.total, stop: stop, steps: steps}
	m.bulk = run
	m.lay(overlay.NewProgress(m.paint, string(run.action), fmt.Sprintf("esc: stop after this batch; %s on the audit screen goes on", m.env.keyOf("resume")), run.total))
	w := m.env.writer
	work := func() tea.Msg {
		defer stop()
		params := msg.params
		params.OnBatch = func(progress jobq.BulkProgress) {
			select {
			case steps <- bulkMsg{run: run, progress: progress}:
			default: // the one before is yet to be shown; the next one says more
			}
		}
		progress, err := w.Bulk(ctx, params)
		close(steps)
		return bulkMsg{run, progress, true, err}
	}
	return tea.Batch(work, m.bulk.listen())
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

// bulkMsg is how far a bulk action has come; done with the last one.
type bulkMsg struct {
	run      *bulkRun
	progress jobq.BulkProgress
	done     bool
	err      error
}

func (msg bulkMsg) apply(m *Model) tea.Cmd {
	if m.bulk == nil || msg.run != m.bulk { // the last step of one that has ended already
		return nil
	}
	if msg.progress.Done >= m.bulk.progress.Done {
		m.bulk.progress = msg.progress
	}
	shown, isShown := m.overlay.(*overlay.Progress)
	if isShown {
		shown.Update(overlay.Step{Done: int64(m.bulk.progress.Done), Refused: int64(m.bulk.progress.Refused)})
	}
	if !msg.done {
		return m.bulk.listen()
	}
	text := fmt.Sprintf("%s: %s changed, %d left alone", m.bulk.action, format.Count(int64(msg.progress.Done), "job"), msg.progress.Refused)
	switch {
	case errors.Is(msg.err, context.Canceled):
		text += fmt.Sprintf("; stopped, %s on the audit screen goes on with action %d", m.env.keyOf("resume"), msg.progress.AuditID)
	case msg.err != nil:
		text += ": " + screen.ShortError(msg.err)
	}
	if msg.progress.Done > 0 {
		m.lastAudit = msg.progress.AuditID
		text += m.undoHint()
	}
	m.say(text)
	m.bulk = nil
	if isShown {
		m.overlay = nil
	}
	m.renew(data.Page, data.Visible, data.Count, data.Audit)
	return tea.Batch(m.toScreens(screen.Acted{Acted: &jobq.Acted{}}), m.askHeld()) // the selection is done with
}
