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

// Failure is a group of jobs that have failed, for good or until they are tried again: those of one
// queue and kind, for the same reason.
type Failure struct {
	// ID is made of Queue, Kind and Error, and so is the same whenever, and wherever,
	// the group is looked at: 8 hexadecimal digits.
	ID    string `json:"id"`
	Queue string `json:"queue"`
	Kind  string `json:"kind"`
	// Error is what the errors have in common: the first 60 characters of the first
	// line, with # for numbers, ids, addresses and what is in quotes.
	Error string `json:"error"`
	// Failed have failed for good, within the span. Retrying have failed and are to be tried again: they are
	// scheduled, or in the line. Those that run just now are in neither.
	Failed   int64 `json:"failed"`
	Retrying int64 `json:"retrying"`
	// First and Last are when the first and the last of them have failed for good. Zero when
	// none has.
	First   time.Time `json:"first,omitzero"`
	Last    time.Time `json:"last,omitzero"`
	Example int64     `json:"example"` // the id of the newest
}

// Filter is the filter that finds the jobs of the group that have failed for good, whenever they did.
func (f Failure) Filter() string { return f.filter(filter.Equal("state", string(jobq.StateFailed))) }

// RetryFilter is the filter that finds those that are to be tried again.
func (f Failure) RetryFilter() string {
	return f.filter(filter.Equal("state", string(jobq.StateScheduled), string(jobq.StateAvailable)), filter.Term{Field: "attempts", Op: ">", Values: []filter.Value{{Text: "0"}}})
}

func (f Failure) filter(states ...filter.Term) string {
	var query filter.Query
	return query.And(append(states, filter.Equal("queue", f.Queue), filter.Equal("kind", f.Kind), filter.Reason(f.Error))...).String()
}

// Failures are the jobs that have failed within a span, and those that are to be tried again, in groups.
type Failures struct {
	Groups []Failure `json:"groups"` // the most frequent first
	// More says that not all failures within the span were looked at: more jobs of each group may have
	// failed, and there may be other groups. MoreRetrying says the same of those that are to be tried again.
	More         bool `json:"more,omitempty"`
	MoreRetrying bool `json:"more_retrying,omitempty"`
	// Left is how many groups were found beside these.
	Left int64 `json:"left,omitempty"`
}

// FailuresMax is how many jobs that did not succeed Failures looks at, the last ones, and how many that have failed and
// are to be tried again: those with the highest ids.
const FailuresMax = 10_000

// FailureGroupsMax is the most groups that one call returns.
const FailureGroupsMax = 1000

// failureGroups is how many it returns unless told otherwise.
const failureGroups = 100

// FailureQuery says which groups of failures are wanted. What is empty chooses nothing.
type FailureQuery struct {
	Span  time.Duration // how far back jobs have failed for good; needed, and positive
	Queue string
	Kind  string
	ID    string // of one group
	Limit int    // groups, 1 to 1000; 0 means 100
}

// Failures groups the failures within the span, and the jobs that have failed and are to be tried
// again, most frequent first. Of each it looks at FailuresMax jobs at most. ErrInvalid if the span or the limit
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
		failures.More, failures.MoreRetrying = row.Looked >= FailuresMax, row.LookedAgain >= FailuresMax
		if row.ID == "" { // there is no group
			break
		}
		group := Failure{ID: row.ID, Queue: row.Queue, Kind: row.Kind, Error: row.Error, Failed: row.Failed, Retrying: row.Retrying, Example: row.Example}
		if row.Failed > 0 {
			group.First, group.Last = db.Moment(row.First), db.Moment(row.Last)
		}
		failures.Groups = append(failures.Groups, group)
		failures.Left = row.Groups - int64(len(rows))
	}
	return failures, nil
}
