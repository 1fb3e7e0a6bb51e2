package monitor

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// EventType is what an event is about.
type EventType string

// The types of events.
const (
	EventStalled            EventType = "stalled"             // a lease ended, and its job was taken away
	EventOrphaned           EventType = "orphaned"            // a job was taken from a worker that is proven dead
	EventQuarantined        EventType = "quarantined"         // a kind was paused, since its workers crash
	EventLeadershipAcquired EventType = "leadership_acquired" // a janitor has become the leader
	EventLeadershipLost     EventType = "leadership_lost"     // it is not any more; the message says why
	EventLeadershipReleased EventType = "leadership_released" // it has stopped as it was told to
	EventError              EventType = "error"               // a janitor was interrupted, could not do a chore, or has found what another left undone
)

// Event is what a janitor or a starting worker saw or did. They are kept for
// a week.
type Event struct {
	ID      int64     `json:"id"`
	At      time.Time `json:"at"`
	Type    EventType `json:"type"`
	Source  string    `json:"source"` // the id of the janitor or worker
	JobID   int64     `json:"job_id,omitempty"`
	Queue   string    `json:"queue,omitempty"`
	Message string    `json:"message,omitempty"`
}

// eventsMax bounds one page of events.
const eventsMax = 1000

// Events returns up to limit events, 1 to 1000, newest first, older than the one
// with the id before; 0 begins with the newest.
func (m *Monitor) Events(ctx context.Context, before int64, limit int) ([]Event, error) {
	if limit < 1 || limit > eventsMax {
		return nil, fmt.Errorf("list events: %w: limit must be 1 to %d, not %d", jobq.ErrInvalid, eventsMax, limit)
	}
	if before <= 0 {
		before = math.MaxInt64
	}
	rows, err := m.queries.EventList(ctx, before, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, dberror.Wrap(m.schema, "list events", err)
	}
	events := make([]Event, len(rows))
	for i, row := range rows {
		events[i] = Event{
			ID: row.ID, At: db.Moment(row.At), Type: EventType(row.Type), Source: row.Source, JobID: row.JobID.Int64,
			Queue: db.Text(row.Queue), Message: row.Message,
		}
	}
	return events, nil
}
