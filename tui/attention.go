package tui

import (
	"fmt"
	"time"
)

// workerSilence is how long a worker may be silent before it is pointed out:
// it beats every 10 seconds.
const workerSilence = 30 * time.Second

// attention lists what an operator should look at, worst first.
func (m *Model) attention() []string {
	now := m.env.now()
	var lines []string
	bad := func(format string, args ...any) { lines = append(lines, " "+red("!")+" "+fmt.Sprintf(format, args...)) }
	odd := func(format string, args ...any) {
		lines = append(lines, " "+styled(sgrYellow, "~")+" "+fmt.Sprintf(format, args...))
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
		bad("%s: %s failed in %s, %d%% %q", clean(f.Queue), number(total), ago(now.Sub(f.Since)), f.Jobs*100/total, clean(f.Error))
	}
	for _, w := range m.workers {
		if silence := now.Sub(w.HeartbeatAt); silence > workerSilence {
			bad("worker %s silent %s, holds %d leases", clean(w.ID), ago(silence), w.Running)
		}
	}
	for _, q := range m.queues {
		switch wait := time.Duration(0); {
		case q.PausedAt != nil:
			odd("%s paused %s by %s %s", clean(q.Name), ago(now.Sub(*q.PausedAt)), clean(q.PausedBy), clean(q.PauseReason))
		case q.HeadRunAt == nil:
		case q.Slots == 0:
			bad("%s: %s jobs wait and no worker takes from it", clean(q.Name), cappedAt(q.Available, q.AvailableMax))
		default:
			if wait = now.Sub(*q.HeadRunAt); wait > waitTrouble {
				odd("%s: the next job has waited %s", clean(q.Name), ago(wait))
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
		return dim("nothing has ended since this screen was opened")
	case m.feedReason != "":
		return dim(clean(m.feedReason))
	}
	return dim("polling: no live events yet")
}

func (m *Model) activityLine(a activity) string {
	return dim(a.at.UTC().Format("15:04:05")) + " " + a.text
}
