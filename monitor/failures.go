package monitor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/filter"
	"github.com/jobq-dev/jobq/internal/storable"
)

// Failure is a group of jobs that have failed: those of one queue and kind, for
// the same reason.
type Failure struct {
	// ID is made of Queue, Kind and Error, and so is the same whenever, and wherever,
	// the group is looked at: 8 hexadecimal digits.
	ID    string `json:"id"`
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	// Error is what the errors have in common: the first 60 characters of the first
	// line, with # for numbers, ids, addresses and what is in quotes.
	Error   string    `json:"error"`
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

// FailuresMax is how many jobs that did not succeed Failures looks at.
const FailuresMax = 10_000

// FailureGroupsMax is the most groups that one call returns.
const FailureGroupsMax = 1000

// failureGroups is how many it returns unless told otherwise.
const failureGroups = 100

// FailureQuery says which groups of failures are wanted. What is empty chooses nothing.
type FailureQuery struct {
	Span  time.Duration // how far back; needed, and positive
	Queue string
	Kind  string
	ID    string // of one group
	Limit int    // groups, 1 to 1000; 0 means 100
}

// Failures groups the failures within the span, most frequent first: those among
// the last FailuresMax jobs that did not succeed. ErrInvalid if the span or the limit
// is beyond its bounds.
func (m *Monitor) Failures(ctx context.Context, query FailureQuery) (Failures, error) {
	limit := cmp.Or(query.Limit, failureGroups)
	switch {
	case query.Span <= 0:
		return Failures{}, fmt.Errorf("failures: %w: span must be positive, not %s", jobq.ErrInvalid, query.Span)
	case limit < 1 || limit > FailureGroupsMax:
		return Failures{}, fmt.Errorf("failures: %w: limit must be 1 to %d, not %d", jobq.ErrInvalid, FailureGroupsMax, limit)
	}
	for name, text := range map[string]string{"queue": query.Queue, "kind": query.Kind, "id": query.ID} {
		if err := storable.Text(name, text); err != nil {
			return Failures{}, fmt.Errorf("failures: %w: %w", jobq.ErrInvalid, err)
		}
	}
	rows, err := m.queries.FailuresByError(ctx, db.FailuresByErrorParams{
		Queue: query.Queue, Kind: query.Kind, GroupID: query.ID, Span: db.Interval(query.Span), RowCount: FailuresMax,
		GroupCount: int32(limit), // #nosec G115 -- checked above
	})
	if err != nil {
		return Failures{}, dberror.Wrap(m.schema, "failures", err)
	}
	failures := Failures{Groups: make([]Failure, 0, len(rows))}
	for _, row := range rows {
		failures.More = row.Looked >= FailuresMax
		if row.ID == "" { // there is no group
			break
		}
		failures.Groups = append(failures.Groups, Failure{row.ID, row.Queue, row.Kind, row.Error, row.Jobs, row.First.Time.UTC(), row.Last.Time.UTC(), row.Example})
		failures.Left = row.Groups - int64(len(rows))
	}
	return failures, nil
}
