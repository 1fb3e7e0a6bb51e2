package tui

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// activityMax is how many lines of activity are kept.
const activityMax = 40

// takeFeed shows what workers have said, without asking the database: rows on
// the screen change in place, counts of this minute grow. What was not named
// is asked for with the next poll.
func (m *Model) takeFeed(msg feedMsg) {
	m.feedAt, m.feedLag = msg.at, msg.lag
	if m.frozen {
		return
	}
	for _, event := range msg.events {
		m.patchRow(event)
		if story := m.job.story.job; story != nil && story.ID == event.id {
			patchJob(story, event, msg.at)
			if event.state != jobq.Running {
				m.renew(panelJob) // its record is in the database now
			}
		}
	}
	m.countEnded(msg)
	m.tell(msg)
	if msg.gap && m.screen == screenJobs {
		m.hurry(gapEvery, panelVisible)
	}
	if len(msg.ended) > 0 {
		m.hurry(0, panelQueues, panelPage)
	}
}

// gapEvery is how often the rows on the screen are looked at while workers do
// more than they can name.
const gapEvery = 200 * time.Millisecond

// hurry asks again soon: after the floor given, or else the panel's own, and
// no sooner than a slow database allows.
func (m *Model) hurry(floor time.Duration, panels ...panel) {
	for _, p := range panels {
		state := &m.polls[p]
		wait := max(floor, dutyShare*state.took)
		if floor == 0 {
			wait = max(floors[p], wait)
		}
		soon := state.at.Add(wait)
		if state.err == nil && state.due.After(soon) {
			state.due = soon
		}
	}
}

// patchRow changes the row of a job in the list, if it is there.
func (m *Model) patchRow(event jobEvent) {
	at := m.jobs.indexOf(event.id)
	if at < 0 {
		return
	}
	row := m.jobs.rows[at]
	patchJob(row, event, m.env.now())
	m.jobs.notice(row, m.env.now())
}

// patchJob is what the event tells about the job.
func patchJob(job *jobq.Job, event jobEvent, now time.Time) {
	if event.state == jobq.Running {
		if job.State != jobq.Running {
			started := now
			job.StartedAt, job.FinishedAt = &started, nil
			job.Progress = nil
		}
		if event.percent > 0 || event.stage != "" {
			job.Progress = &jobq.Progress{Percent: event.percent, Stage: event.stage, At: now}
		}
	}
	job.State, job.Attempts, job.LeaseToken = event.state, event.attempts, event.token
	switch event.state {
	case jobq.Completed, jobq.Failed, jobq.Cancelled:
		finished := now
		started := now.Add(-event.took)
		job.StartedAt, job.FinishedAt = &started, &finished
	case jobq.Scheduled, jobq.Available:
		job.StartedAt, job.FinishedAt = nil, nil
	case jobq.Running:
	}
}

// countEnded adds to the sums of this minute. The next poll brings the sums as
// the database has them.
func (m *Model) countEnded(msg feedMsg) {
	minute := m.env.now().Truncate(time.Minute)
	for queue, count := range msg.ended {
		at := slices.IndexFunc(m.minutes, func(s jobq.Minute) bool { return s.Queue == queue && s.At.Equal(minute) })
		if at < 0 {
			m.minutes = append(m.minutes, jobq.Minute{At: minute, QueueStats: jobq.QueueStats{Queue: queue}})
			at = len(m.minutes) - 1
		}
		m.minutes[at].Completed += count.completed
	}
}

// tell adds lines of activity: what went wrong job by job, a few others, and
// the rest as counts.
func (m *Model) tell(msg feedMsg) {
	var lines []activity
	add := func(text string) { lines = append(lines, activity{msg.at, text}) }
	named := make(map[string]int64)
	for _, event := range msg.events {
		if event.state == jobq.Running && event.stage == "" && event.percent == 0 {
			continue
		}
		failed := event.state != jobq.Completed && event.state != jobq.Running
		if len(lines) >= 3 && !failed || len(lines) >= 8 {
			continue
		}
		name := fmt.Sprintf("%s/%s %d", widget.Clean(event.queue), widget.Clean(event.kind), event.id)
		if event.state == jobq.Running {
			add(fmt.Sprintf("%s  %.0f%% %s", name, event.percent, widget.Clean(event.stage)))
			continue
		}
		named[event.queue]++
		add(fmt.Sprintf("%s %s %s %s", name, m.paint.Arrow, m.paint.State(event.state).Render(string(event.state)), format.Took(event.took)))
	}
	for _, queue := range sortedKeys(msg.ended) {
		count := msg.ended[queue]
		if rest := count.completed + count.failed - named[queue]; rest > 0 {
			text := fmt.Sprintf("%s %s more ended", widget.Clean(queue), format.Number(rest))
			if count.failed > 0 {
				text += fmt.Sprintf(", %s of all badly", format.Number(count.failed))
			}
			add(text)
		}
	}
	m.activity = append(lines, m.activity...)
	m.activity = m.activity[:min(len(m.activity), activityMax)]
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
