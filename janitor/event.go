package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
)

// eventTimeout bounds the time that the record of an event may take.
const eventTimeout = 2 * time.Second

// Event is what a janitor tells Config.OnEvent.
type Event struct {
	Type      monitor.EventType
	JanitorID string
	Job       *Stalled // of monitor.EventStalled
	Kind      string   // of monitor.EventQuarantined: the kind that is paused
	Err       error    // of monitor.EventError, and why leadership was lost
}

// Stalled is a job that was taken away from its worker.
type Stalled struct {
	ID             int64
	Queue, Kind    string
	Worker         string // the worker that has lost it
	LeaseToken     int64
	LeaseExpiredAt time.Time
	Attempts       int        // including this one
	State          jobq.State // afterwards
}

// tell calls Config.OnEvent, and stores the event, unless the statement that caused it has stored it.
// If it cannot be stored, that is only logged at debug level: the event may be that the database is away.
func (j *Janitor) tell(ctx context.Context, event Event) {
	event.JanitorID = j.id
	if event.Type == monitor.EventError {
		j.tally.errors.Add(1)
	}
	if j.config.OnEvent != nil {
		j.telling.Lock()
		j.config.OnEvent(event)
		j.telling.Unlock()
	}
	if event.Job != nil || event.Kind != "" {
		return
	}
	message := ""
	if event.Err != nil {
		message = event.Err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventTimeout)
	defer cancel()
	if err := j.schema.Queries(j.pool()).EventAdd(ctx, string(event.Type), j.id, message); err != nil {
		j.log.Debug("event not recorded", "type", event.Type, "error", err)
	}
}
