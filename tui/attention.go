package tui

import (
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/tui/widget"
)

// workerSilence is how long a worker may be silent before it is pointed out:
// it beats every 10 seconds.
const workerSilence = 30 * time.Second

// attention lists what an operator should look at, worst first.
func (m *Model) attention() []string {
	now := m.env.now()
	var lines []string
	bad := func(format string, args ...any) {
		lines = append(lines, " "+m.paint.Alarm.Render("!")+" "+fmt.Sprintf(format, args...))
	}
	odd := func(format string, args ...any) {
		lines = append(lines, " "+m.paint.Warn.Render("~")+" "+fmt.Sprintf(format, args...))
	}
	byQueue := make(map[string]int64)
	for _, f := range m.failures {
		byQueue[f.Queue] += f.Jobs
	}
	told := make(map[string]bool)
	for _, f := range m.failures { // most frequent first
		if told[f.Queue] {
			continue
		}
		told[f.Queue] = true
		total := byQueue[f.Queue]
		bad("%s: %s failed in %s, %d%% %q", widget.Clean(f.Queue), format.Number(total), format.Ago(now.Sub(f.Since)), f.Jobs*100/total, widget.Clean(f.Error))
	}
	for _, w := range m.workers {
		if silence := now.Sub(w.HeartbeatAt); silence > workerSilence {
			bad("worker %s silent %s, holds %d leases", widget.Clean(w.ID), format.Ago(silence), w.Running)
		}
	}
	for _, q := range m.queues {
		switch wait := time.Duration(0); {
		case q.PausedAt != nil:
			odd("%s paused %s by %s %s", widget.Clean(q.Name), format.Ago(now.Sub(*q.PausedAt)), widget.Clean(q.PausedBy), widget.Clean(q.PauseReason))
		case q.HeadRunAt == nil:
		case q.Slots == 0:
			bad("%s: %s jobs wait and no worker takes from it", widget.Clean(q.Name), format.Capped(q.Available))
		default:
			if wait = now.Sub(*q.HeadRunAt); wait > waitTrouble {
				odd("%s: the next job has waited %s", widget.Clean(q.Name), format.Ago(wait))
			}
		}
	}
	if m.leader == nil && !m.polls[panelLeader].at.IsZero() {
		odd("no janitor leads: lost jobs are not recovered by one in leader mode")
	}
	return lines
}

func (m *Model) noActivity() string {
	switch {
	case m.feed == feedLive:
		return m.paint.Muted.Render("nothing has ended since this screen was opened")
	case m.feedReason != "":
		return m.paint.Muted.Render(widget.Clean(m.feedReason))
	}
	return m.paint.Muted.Render("polling: no live events yet")
}

func (m *Model) activityLine(a activity) string {
	return m.paint.Muted.Render(a.at.UTC().Format("15:04:05")) + " " + a.text
}
