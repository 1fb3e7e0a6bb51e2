package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/filter"
)

// Summary is what has become of all jobs that a filter matches, such as those of a sweep.
type Summary struct {
	Jobs   int64                `json:"jobs"`
	States map[jobq.State]int64 `json:"states"` // those that have jobs
	// Open are the jobs that have not ended: waiting, scheduled, available or running.
	Open int64 `json:"open"`
	// EndedPerSecond is how many have ended a second lately: within the last minute, or as far back as it takes to see 20
	// that have, a day at most. 0 if fewer than two have.
	EndedPerSecond float64 `json:"ended_per_second"`
	// Left is how long the open ones take at this rate; 0 if there are none, or there is no rate.
	Left time.Duration `json:"left_ns"`
}

// SummaryUsage is what the programs of all jobs that a filter matches have used, in all runs that are recorded.
type SummaryUsage struct {
	Runs        int64         `json:"runs"` // those of which it is known
	CPUTime     time.Duration `json:"cpu_time_ns"`
	MaxRSSBytes int64         `json:"max_rss_bytes"` // the most of one run
}

// summarySpans are those in which ended jobs are counted, until there are enough for a rate.
func summarySpans() []string { return []string{"1m", "10m", "1h", "1d"} }

const (
	summaryEndsMin = 20
	leftMax        = 100 * 365 * 24 * time.Hour // no longer one fits a duration by far
)

// Summary counts the jobs that the filter matches by state, and says how long the open ones take at the present rate. It
// reads all of these jobs: give it a filter that an index serves, or that matches thousands, not millions. The fields of
// the filter that are about pages do not matter.
func (m *Monitor) Summary(ctx context.Context, chosen jobq.Filter) (*Summary, error) {
	page, err := summaryPage(chosen, "")
	if err != nil {
		return nil, err
	}
	counts, err := m.schema.JobStates(ctx, m.pool, page)
	if err != nil {
		return nil, dberror.Wrap(m.schema, "summary", err)
	}
	summary := &Summary{States: make(map[jobq.State]int64, len(counts))}
	for _, count := range counts {
		state := jobq.State(count.State)
		summary.Jobs += count.Count
		summary.States[state] += count.Count
		if state != jobq.StateCompleted && state != jobq.StateFailed && state != jobq.StateCancelled {
			summary.Open += count.Count
		}
	}
	for _, span := range summarySpans() {
		if summary.Open == summary.Jobs {
			break // none has ended
		}
		if page, err = summaryPage(chosen, "state:completed,failed,cancelled age:<"+span); err != nil {
			return nil, err
		}
		ends, since, err := m.schema.JobEnds(ctx, m.pool, page)
		if err != nil {
			return nil, dberror.Wrap(m.schema, "summary", err)
		}
		if ends > 1 && since > 0 {
			summary.EndedPerSecond = float64(ends) / since.Seconds()
		}
		if ends >= summaryEndsMin {
			break
		}
	}
	if summary.EndedPerSecond > 0 {
		summary.Left = db.Seconds(min(float64(summary.Open)/summary.EndedPerSecond, leftMax.Seconds()))
	}
	return summary, nil
}

// Usage sums up what the programs of the jobs that the filter matches have used, in all recorded runs. It reads all of
// them, as Summary does.
func (m *Monitor) Usage(ctx context.Context, chosen jobq.Filter) (SummaryUsage, error) {
	page, err := summaryPage(chosen, "")
	if err != nil {
		return SummaryUsage{}, err
	}
	usage, err := m.schema.JobUsage(ctx, m.pool, page)
	if err != nil {
		return SummaryUsage{}, dberror.Wrap(m.schema, "usage", err)
	}
	return SummaryUsage{Runs: usage.Runs, CPUTime: db.Seconds(usage.CPUSeconds), MaxRSSBytes: usage.MaxRSSBytes}, nil
}

// summaryPage is the list of the jobs that the filter and further terms match.
func summaryPage(chosen jobq.Filter, more string) (db.JobPage, error) {
	text, err := chosen.Text()
	if err != nil {
		return db.JobPage{}, fmt.Errorf("summary: %w", err)
	}
	query, err := filter.ParseStored(text + " " + more)
	if err != nil {
		return db.JobPage{}, fmt.Errorf("summary: %w: %w", jobq.ErrInvalid, err)
	}
	return query.Page(time.Time{}), nil
}
