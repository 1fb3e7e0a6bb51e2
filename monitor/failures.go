package monitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/filter"
)

// Failure is a group of jobs that have failed: those of one queue and kind, for
// the same reason.
type Failure struct {
	Queue   string    `json:"queue"`
	Kind    string    `json:"kind"`
	Error   string    `json:"error"` // its first words
	Jobs    int64     `json:"jobs"`
	First   time.Time `json:"first"`   // when the first of them failed
	Last    time.Time `json:"last"`    // and the last
	Example int64     `json:"example"` // the id of the newest
}

// Filter is the filter that finds the jobs of the group, whenever they failed.
func (f Failure) Filter() string {
	var query filter.Query
	return query.And(filter.Equal("state", string(jobq.StateFailed)), filter.Equal("queue", f.Queue), filter.Equal("kind", f.Kind), filter.Reason(f.Error)).String()
}

// Failures are the jobs that have failed within a span, in groups.
type Failures struct {
	Groups []Failure `json:"groups"` // the most frequent first
	// More says that not all failures within the span were looked at: there may be
	// more jobs in each group, and other groups.
	More bool `json:"more,omitempty"`
	// Left is how many groups were found beside these.
	Left int64 `json:"left,omitempty"`
}

// failuresMax is how many jobs that did not succeed Failures looks at, and
// failureGroupsMax how many groups it returns.
const (
	failuresMax      = 10_000
	failureGroupsMax = 100
)

// Failures groups the failures within the span, most frequent first: those among
// the last 10,000 jobs that did not succeed.
func (m *Monitor) Failures(ctx context.Context, span time.Duration) (Failures, error) {
	rows, err := m.queries.FailuresByError(ctx, failureGroupsMax, db.Interval(span), failuresMax)
	if err != nil {
		return Failures{}, dberror.Wrap(m.schema, "failures", err)
	}
	failures := Failures{Groups: make([]Failure, len(rows))}
	for i, row := range rows {
		failures.Groups[i] = Failure{row.Queue, row.Kind, row.Error, row.Jobs, row.First.Time.UTC(), row.Last.Time.UTC(), row.Example}
		failures.More, failures.Left = row.Looked >= failuresMax, row.Groups-int64(len(rows))
	}
	return failures, nil
}
