package data

import (
	"time"

	"github.com/jobq-dev/jobq/internal/format"
)

// Totals are the counts of all queues together.
type Totals struct {
	Available, Scheduled, Retrying, Running, Claimed, Slots, Failed, Cancelled int64
	Completed, RecentFailed                                                    int64 // within the hour
	Head                                                                       *time.Time
	HeadQueue                                                                  string
	more                                                                       bool  // available jobs than were counted
	estimate                                                                   int64 // of the available jobs, where all of those not counted have one
}

// AvailableText says how many jobs are available, about how many, or that there may be more: each
// queue is counted up to a limit.
func (t Totals) AvailableText() string {
	if t.estimate > 0 {
		return format.About(t.estimate)
	}
	if t.more {
		return format.CappedAt(t.Available, t.Available)
	}
	return format.Capped(t.Available)
}

// Totals sums up the queues and the minutes.
func (f *Facts) Totals() (t Totals) {
	unknown := false // how many are available in some queue
	for _, q := range f.Queues {
		t.Available += q.Available
		capped := q.AvailableMax > 0 && q.Available >= q.AvailableMax
		t.more = t.more || capped
		unknown = unknown || capped && q.AvailableEstimate == 0
		t.estimate += max(q.AvailableEstimate, q.Available)
		t.Scheduled += q.Scheduled
		t.Retrying += q.Retrying
		t.Running += q.Running
		t.Claimed += q.Claimed
		t.Slots += q.Slots
		t.Failed += q.Failed
		t.Cancelled += q.Cancelled
		if q.HeadRunAt != nil && (t.Head == nil || q.HeadRunAt.Before(*t.Head)) {
			t.Head, t.HeadQueue = q.HeadRunAt, q.Name
		}
	}
	if !t.more || unknown {
		t.estimate = 0
	}
	for minute := range f.counted("") {
		t.Completed += minute.Completed
		t.RecentFailed += minute.Failed
	}
	return t
}

// Rates are what ended a second in the last whole minute, and how long it took.
type Rates struct {
	Completed, Failed float64
	run, wait         time.Duration
	runs, waits       int64 // that run and wait are sums of
}

// Run is how long a run took on average; "-" when none has ended.
func (r Rates) Run() string {
	if r.runs == 0 {
		return "-"
	}
	return format.AtMost(r.run / time.Duration(r.runs))
}

// Wait is how long a job waited for its run on average; "-" when none has ended.
func (r Rates) Wait() string {
	if r.waits == 0 {
		return "-"
	}
	return format.Took(r.wait / time.Duration(r.waits))
}

// Rates of a queue, or of all for an empty name. A minute that has only begun
// says little, and so the current one and the one before count together.
func (f *Facts) Rates(queue string) (r Rates) {
	now := f.now()
	from := now.Truncate(time.Minute).Add(-time.Minute)
	for minute := range f.counted(queue) {
		if !minute.At.Before(from) {
			r.Completed += float64(minute.Completed)
			r.Failed += float64(minute.Failed)
		}
	}
	for _, minute := range f.minutes(queue) {
		if !minute.At.Before(from) {
			r.runs += minute.Runs()
			r.run += minute.RunTime
			r.waits += minute.Completed
			r.wait += minute.WaitTime
		}
	}
	span := now.Sub(from).Seconds()
	r.Completed, r.Failed = r.Completed/span, r.Failed/span
	return r
}

// Left says how long the available jobs of a queue, or of all for an empty name, take at the rate at
// which jobs end now, if there are more than were counted: "5h of work at this rate". Empty where there are
// fewer, or that is not known. Jobs that come meanwhile are not in it.
func (f *Facts) Left(queue string) string {
	estimate := f.Totals().estimate
	if queue != "" {
		estimate = 0
		for _, q := range f.Queues {
			if q.Name == queue {
				estimate = q.AvailableEstimate
			}
		}
	}
	r := f.Rates(queue)
	rate := r.Completed + r.Failed
	if estimate == 0 || rate <= 0 {
		return ""
	}
	seconds := min(float64(estimate)/rate, (1000 * 24 * time.Hour).Seconds())
	return format.Ago(time.Duration(seconds*float64(time.Second))) + " of work at this rate"
}

// Series is a count for each of the last 60 minutes, oldest first: of jobs that
// completed, or of those that failed.
func (f *Facts) Series(queue string, failed bool) []int64 {
	values := make([]int64, 60)
	last := f.now().Truncate(time.Minute)
	for minute := range f.counted(queue) {
		at := 59 - int(last.Sub(minute.At)/time.Minute)
		if at < 0 || at > 59 {
			continue
		}
		if failed {
			values[at] += minute.Failed
		} else {
			values[at] += minute.Completed
		}
	}
	return values
}
