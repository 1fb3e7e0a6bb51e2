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
	"github.com/jobq-dev/jobq/tui/overlay"
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
func (m *Model) actOnAll(action jobq.Action) tea.Cmd {
	all := m.jobs.all
	count := all.snapshot.Count
	details := []string{
		"filter    " + filterOrAll(all.filter),
		"counted   " + all.snapshot.At.UTC().Format("15:04:05Z") + "; jobs that came later are left alone",
		"effect    " + m.effectOf(action),
	}
	if command := m.bulkCommand(action, all.filter); command != "" {
		details = append(details, "as a command   "+widget.Clean(command))
	}
	m.ask(fmt.Sprintf("%s %s jobs that match", action, format.Capped(count)), details, typedCount(count, action), func() tea.Msg {
		return startBulkMsg{jobq.BulkParams{Action: action, Filter: jobq.Filter{Match: all.filter}, Snapshot: all.snapshot}, count}
	})
	return nil
}

func noResume(m *Model) string {
	if len(m.audit) == 0 {
		return "nobody has acted yet"
	}
	return m.audit[m.auditAt()].NoResume()
}

// resumeBulk asks, and then goes on with the action under the cursor.
func (m *Model) resumeBulk() tea.Cmd {
	entry := m.audit[m.auditAt()]
	details := []string{
		"filter    " + filterOrAll(entry.Target),
		"snapshot  " + entry.SnapshotAt.UTC().Format("2006-01-02 15:04:05Z") + ", when it began: later jobs are left alone",
		fmt.Sprintf("so far    %s done, %s not, by %s", format.Number(int64(entry.Done)), format.Number(int64(entry.Refused)), widget.Clean(entry.Actor)),
		"effect    " + m.effectOf(entry.Action),
		"as a command   " + widget.Clean(m.resumeCommand(entry)),
	}
	if entry.Max > 0 {
		details = slices.Insert(details, 3, fmt.Sprintf("at most   %s, as it began: what is left of them, or as many again", format.Number(int64(entry.Max))))
	}
	var answer overlay.Typed
	if m.env.confirm {
		answer = overlay.Typed{Text: strconv.FormatInt(entry.ID, 10), Meaning: "the number of the action", Effect: "go on with it"}
	}
	m.ask(fmt.Sprintf("go on with action %d, %s", entry.ID, entry.Action), details, answer, func() tea.Msg {
		return startBulkMsg{jobq.BulkParams{Action: entry.Action, Resume: entry.ID}, 0}
	})
	return nil
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

// startBulk runs the action apart from the model, which hears of each batch.
func (m *Model) startBulk(msg startBulkMsg) tea.Cmd {
	ctx, stop := context.WithCancel(context.Background())
	steps := make(chan bulkMsg, 1)
	run := &bulkRun{action: msg.params.Action, total: msg.total, stop: stop, steps: steps}
	m.bulk = run
	m.lay(overlay.NewProgress(m.paint, string(run.action), fmt.Sprintf("esc: stop after this batch; %s on the audit screen goes on", m.keyOf("resume")), run.total))
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

func (m *Model) takeBulk(msg bulkMsg) tea.Cmd {
	if m.bulk == nil || msg.run != m.bulk { // the last step of one that has ended already
		return nil
	}
	if msg.progress.Done >= m.bulk.progress.Done {
		m.bulk.progress = msg.progress
	}
	progress, shown := m.overlay.(*overlay.Progress)
	if shown {
		progress.Update(overlay.Step{Done: int64(m.bulk.progress.Done), Refused: int64(m.bulk.progress.Refused)})
	}
	if !msg.done {
		return m.bulk.listen()
	}
	text := fmt.Sprintf("%s: %d jobs, %d not", m.bulk.action, msg.progress.Done, msg.progress.Refused)
	switch {
	case errors.Is(msg.err, context.Canceled):
		text += fmt.Sprintf("; stopped, %s on the audit screen goes on with action %d", m.keyOf("resume"), msg.progress.AuditID)
	case msg.err != nil:
		text += ": " + shortError(msg.err)
	}
	if msg.progress.Done > 0 {
		m.lastAudit = msg.progress.AuditID
		text += m.undoHint()
	}
	m.say(text)
	if shown {
		m.overlay = nil
	}
	m.bulk, m.jobs.all = nil, nil
	m.renew(panelPage, panelVisible, panelCount, panelAudit)
	return m.poll()
}
