package data

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/format"
	"github.com/jobq-dev/jobq/monitor"
)

// Facts are what the database has said last. The root of the UI takes answers
// in; screens only read.
type Facts struct {
	Session  *monitor.Session
	Queues   []monitor.Queue // those with trouble first
	Minutes  []monitor.Minute
	Failures monitor.Failures // of late
	Errors   monitor.Failures // of a day
	Silent   []monitor.SilentRuns
	Kinds    []monitor.Kind
	Workers  []monitor.Worker
	Leader   *monitor.Leader
	Events   []monitor.Event
	Audit    []monitor.AuditEntry
	// Schedules are in the order of their names.
	Schedules []monitor.Schedule

	// Live says that events of workers arrive, and WhyNotLive why not, if that is known.
	Live       bool
	WhyNotLive string

	byQueue  map[string][]monitor.Minute // the Minutes of each queue: each row of a list asks for those of one
	reported []monitor.Minute            // what workers have said to have completed since Minutes came
	failed   map[string]int64            // by queue, of late
	failing  []string                    // the queues with such failures, the most first

	at  [PanelEnd]time.Time // of the last good answer
	err [PanelEnd]error     // of the last answer
	now func() time.Time
}

// NewFacts knows nothing yet.
func NewFacts(now func() time.Time) *Facts { return &Facts{now: now} }

// Known says whether the panel has had a good answer.
func (f *Facts) Known(p Panel) bool { return !f.at[p].IsZero() }

// At is when that was.
func (f *Facts) At(p Panel) time.Time { return f.at[p] }

// Err is what was wrong with the last answer of the panel, if anything was.
func (f *Facts) Err(p Panel) error { return f.err[p] }

// Take takes an answer in.
func (f *Facts) Take(answer Answer) {
	f.err[answer.Panel] = answer.Err
	if answer.Err != nil {
		return
	}
	f.at[answer.Panel] = answer.At
	switch value := answer.Value.(type) {
	case *monitor.Session:
		f.Session = value
	case []monitor.Queue:
		f.setQueues(value)
	case []monitor.Minute:
		f.setMinutes(value)
	case monitor.Failures:
		if answer.Panel == Errors {
			f.Errors = value
			return
		}
		f.Failures = value
		f.sumFailed()
	case []monitor.SilentRuns:
		f.Silent = value
	case []monitor.Kind:
		f.Kinds = value
	case []monitor.Worker:
		f.Workers = value
	case *monitor.Leader:
		f.Leader = value
	case []monitor.Event:
		f.Events = value
	case []monitor.AuditEntry:
		f.Audit = value
	case []monitor.Schedule:
		f.Schedules = value
	}
}

// Heard counts what workers say since the last answer, which is not in the Minutes
// yet. It is kept apart from them: workers do not say how long runs took, so that the
// averages know nothing of it. The next answer brings the sums as the database has them.
func (f *Facts) Heard(feed Feed) {
	minute := f.now().Truncate(time.Minute)
	for queue, count := range feed.Ended {
		at := slices.IndexFunc(f.reported, func(s monitor.Minute) bool { return s.Queue == queue && s.At.Equal(minute) })
		if at < 0 {
			f.reported = append(f.reported, monitor.Minute{At: minute, QueueStats: monitor.QueueStats{Queue: queue}})
			at = len(f.reported) - 1
		}
		f.reported[at].Completed += count.Completed
	}
}

// setMinutes stores the minutes, in which all that was reported before is counted.
func (f *Facts) setMinutes(minutes []monitor.Minute) {
	f.Minutes, f.reported = minutes, nil
	f.byQueue = map[string][]monitor.Minute{}
	for _, minute := range minutes {
		f.byQueue[minute.Queue] = append(f.byQueue[minute.Queue], minute)
	}
	f.sumFailed()
}

// minutes are the Minutes of a queue, or of all for an empty name.
func (f *Facts) minutes(queue string) []monitor.Minute {
	if queue == "" {
		return f.Minutes
	}
	return f.byQueue[queue]
}

// counted are the minutes of a queue, or of all for an empty name, and what was
// heard of it since.
func (f *Facts) counted(queue string) iter.Seq[monitor.Minute] {
	return func(yield func(monitor.Minute) bool) {
		for _, minute := range f.minutes(queue) {
			if !yield(minute) {
				return
			}
		}
		for _, minute := range f.reported {
			if (queue == "" || minute.Queue == queue) && !yield(minute) {
				return
			}
		}
	}
}

// setQueues stores the queues, those with trouble first. Between those with the
// same trouble, the order is by name and never changes.
func (f *Facts) setQueues(queues []monitor.Queue) {
	slices.SortStableFunc(queues, func(a, b monitor.Queue) int {
		if x, y := f.trouble(a), f.trouble(b); x != y {
			return y - x
		}
		return strings.Compare(a.Name, b.Name)
	})
	f.Queues = queues
}

// WorkerSilence is how long a worker may be silent before it is pointed out.
const WorkerSilence = format.WorkerSilence

// WaitTrouble is how long a job may wait before the UI draws attention to it.
const WaitTrouble = 30 * time.Second

// trouble ranks queues: failures of late, then jobs that wait for long or that no
// worker takes, then a pause. A queue that is not in use any more has no trouble, whatever it has left behind,
// and comes last.
func (f *Facts) trouble(q monitor.Queue) int {
	if Unused(q) {
		return -1
	}
	rank := 0
	if f.FailedOfLate(q.Name) > 0 {
		rank += 4
	}
	switch {
	case q.PausedAt != nil: // somebody wants its jobs to wait
		rank++
	case q.Available > 0 && (q.Slots == 0 || q.HeadRunAt != nil && f.now().Sub(*q.HeadRunAt) > WaitTrouble):
		rank += 2
	}
	return rank
}

// Unused says that a queue has no worker, no job that waits or runs, and is not
// paused: what is left of it are jobs that have ended, or settings.
func Unused(q monitor.Queue) bool {
	return q.Slots == 0 && q.Available == 0 && q.Scheduled == 0 && q.Waiting == 0 && q.Retrying == 0 && q.Held() == 0 && q.PausedAt == nil
}

// FailedOfLate is how many jobs of the queue failed within FailuresSpan: the sum
// of its minutes, or of its known errors where that is more, since the minutes
// come a little later.
func (f *Facts) FailedOfLate(queue string) int64 { return f.failed[queue] }

// Failing are the queues with failures of late, those with the most first.
func (f *Facts) Failing() []string { return f.failing }

// sumFailed sums the failures of late up by queue, once for each answer: sorting
// and drawing ask for the sums of all queues again and again.
func (f *Facts) sumFailed() {
	from := f.now().Add(-FailuresSpan)
	f.failed = make(map[string]int64)
	for _, minute := range f.Minutes {
		if minute.Failed > 0 && minute.At.After(from) {
			f.failed[minute.Queue] += minute.Failed
		}
	}
	known := make(map[string]int64)
	for _, failure := range f.Failures.Groups {
		known[failure.Queue] += failure.Failed
	}
	for queue, jobs := range known {
		if jobs > f.failed[queue] {
			f.failed[queue] = jobs
		}
	}
	f.failing = slices.SortedFunc(maps.Keys(f.failed), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.failed[b], f.failed[a]), strings.Compare(a, b))
	})
}
