package jobq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq/internal/db"
)

// CountMax bounds the counts of waiting jobs: a count that has reached it
// means "at least as many".
const CountMax = 10_000

// Queue is a queue with its settings and what waits and runs in it.
type Queue struct {
	Name string `json:"name"`
	// Available is counted up to AvailableMax: CountMax, and less with more than
	// ten queues. A count that has reached it means "at least as many".
	Available    int64 `json:"available"`
	AvailableMax int64 `json:"available_max"`
	// Scheduled and Retrying count among the CountMax jobs of all queues that
	// are due next, Failed and Cancelled among the CountMax that ended last
	// without success.
	Scheduled int64      `json:"scheduled"`
	Retrying  int64      `json:"retrying"` // those of the scheduled that have failed before
	Running   int64      `json:"running"`
	Slots     int64      `json:"slots"` // of workers that live and do not drain
	Failed    int64      `json:"failed"`
	Cancelled int64      `json:"cancelled"`
	HeadRunAt *time.Time `json:"head_run_at,omitempty"` // since when the next job to run could have run
	QueueSettings
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
}

// Queues returns every queue that has a setting, a live job or a worker, by
// name, at most 1000. It costs the same however many jobs there are.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	rows, err := c.queries.QueueList(ctx, CountMax)
	if err != nil {
		return nil, c.clientError("list queues", err)
	}
	queues := make([]Queue, len(rows))
	for i, row := range rows {
		queues[i] = Queue{
			Name: row.Name, Available: row.Available, AvailableMax: row.AvailableMax, Scheduled: row.Scheduled, Retrying: row.Retrying, Running: row.Running,
			Slots: row.Slots, Failed: row.Failed, Cancelled: row.Cancelled, HeadRunAt: timeOrNil(row.HeadRunAt),
			QueueSettings: QueueSettings{
				Lease: milliseconds(row.LeaseMs), ExtendEvery: milliseconds(row.ExtendEveryMs), Heartbeat: Heartbeat(row.Heartbeat),
				StaleGrace: milliseconds(row.StaleGraceMs), Redelivery: Redelivery(row.Redelivery),
				RedeliveryDelay: milliseconds(row.RedeliveryDelayMs), ResetOnReap: row.ResetOnReap,
			},
			PausedAt: utc(row.PausedAt), PausedBy: text(row.PausedBy), PauseReason: text(row.PauseReason),
		}
	}
	return queues, nil
}

// QueueActed is what came of a pause or a resume.
type QueueActed struct {
	// AuditID is the action's entry in the audit, for Undo; 0 when nothing changed.
	AuditID int64 `json:"audit_id,omitempty"`
	// Changed means that the queue was not paused, or paused, before.
	Changed bool `json:"changed"`
	// Known is what QueueKnown said just before the action.
	Known bool `json:"known"`
}

// PauseQueue makes workers claim nothing more from the queue; what runs goes
// on. By and reason are for people, and default to the client's Actor and to
// nothing. A queue that is not known yet is paused too, and its first job will
// wait; to refuse a misspelt name, call QueueKnown first.
func (c *Client) PauseQueue(ctx context.Context, name, by, reason string) (QueueActed, error) {
	if by == "" {
		by = c.actor
	}
	return c.actOnQueue(ctx, db.QueueActParams{Action: string(ActionPause), Actor: by, Queue: name, Note: textOrNull(reason)})
}

// ResumeQueue lets workers claim from the queue again, and wakes them.
func (c *Client) ResumeQueue(ctx context.Context, name string) (QueueActed, error) {
	return c.actOnQueue(ctx, db.QueueActParams{Action: string(ActionResume), Actor: c.actor, Queue: name})
}

// actOnQueue acts and records it in the audit.
func (c *Client) actOnQueue(ctx context.Context, params db.QueueActParams) (QueueActed, error) {
	row, err := retried(ctx, func() (db.QueueActRow, error) { return c.queries.QueueAct(ctx, params) })
	if err != nil {
		return QueueActed{}, c.clientError(fmt.Sprintf("%s queue %q", params.Action, params.Queue), err)
	}
	return QueueActed{AuditID: row.Audit, Changed: row.Audit > 0, Known: row.Known}, nil
}

// QueueKnown says whether anything in the database names this queue: settings, a
// job that waits or runs, a worker that serves it, or a job that ended within the
// last 30 days. If nothing does, the name may be misspelt. Of the scheduled jobs it
// looks at the CountMax that are due next. It is quick on a busy database too: it
// stops at the first of these, and each look is small.
func (c *Client) QueueKnown(ctx context.Context, name string) (bool, error) {
	known, err := c.queries.QueueKnown(ctx, name)
	if err != nil {
		return false, c.clientError(fmt.Sprintf("look for queue %q", name), err)
	}
	return known, nil
}

// Worker is a worker process that has registered itself.
type Worker struct {
	ID       string         `json:"id"`
	Hostname string         `json:"hostname"`
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Slots    map[string]int `json:"slots"` // by queue
	Kinds    []string       `json:"kinds"`
	// Programs sums up those of the kinds that have programs for handlers.
	Programs    map[string]Programs `json:"programs,omitempty"`
	Draining    bool                `json:"draining"` // takes no new work, or was asked to
	Running     int64               `json:"running"`  // leases held
	StartedAt   time.Time           `json:"started_at"`
	HeartbeatAt time.Time           `json:"heartbeat_at"`
}

// Programs sums up the programs of one kind that a worker has run since its
// start, kept ones included. Those that have ended did so in one of the ways
// between NotStarted and Stopped; the others run.
type Programs struct {
	Started     int64   `json:"started"`
	NotStarted  int64   `json:"not_started"` // command not found, not executable, no such user
	Succeeded   int64   `json:"succeeded"`   // exit code 0
	Later       int64   `json:"later"`       // exit code 75, which asks for another run
	Final       int64   `json:"final"`       // exit code 65, which asks for none
	Failed      int64   `json:"failed"`      // another exit code
	Signalled   int64   `json:"signalled"`   // ended by a signal that was not the worker's
	Stopped     int64   `json:"stopped"`     // told to end by the worker, for whatever reason
	CPUSeconds  float64 `json:"cpu_seconds"` // of those that have ended
	MaxRSSBytes int64   `json:"max_rss_bytes"`
	// Trouble is why jobs of the kind wait on this worker: its HTTP server cannot be
	// reached, or the machine cannot start programs. "" for none.
	Trouble string `json:"trouble,omitempty"`
}

// Workers returns the registered worker processes, by id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	rows, err := c.queries.WorkerList(ctx)
	if err != nil {
		return nil, c.clientError("list workers", err)
	}
	workers := make([]Worker, len(rows))
	for i, row := range rows {
		workers[i] = Worker{
			ID: row.ID, Hostname: row.Hostname, PID: int(row.Pid), Version: row.Version, Kinds: row.Kinds,
			Draining: row.Draining, Running: row.Running,
			StartedAt: row.StartedAt.Time.UTC(), HeartbeatAt: row.HeartbeatAt.Time.UTC(),
		}
		if err := json.Unmarshal(row.Queues, &workers[i].Slots); err != nil {
			return nil, fmt.Errorf("queues of worker %s: %w", row.ID, err)
		}
		if err := json.Unmarshal(row.Programs, &workers[i].Programs); err != nil {
			return nil, fmt.Errorf("programs of worker %s: %w", row.ID, err)
		}
	}
	return workers, nil
}

// DrainWorker asks a worker to take no new work, and to leave when what it runs
// has ended, however long that takes. It hears of it at once, or where it cannot
// listen within ten seconds. It says whether the worker did not drain before.
// ErrNotFound if there is no such worker. This cannot be undone.
func (c *Client) DrainWorker(ctx context.Context, id string) (bool, error) {
	operation := fmt.Sprintf("drain worker %q", id)
	auditID, err := retried(ctx, func() (int64, error) { return c.queries.WorkerDrain(ctx, c.actor, id) })
	if errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("%s: %w", operation, wordedError{ErrNotFound, "no such worker"})
	}
	if err != nil {
		return false, c.clientError(operation, err)
	}
	return auditID > 0, nil
}

// QueueStats sums up the jobs of a queue that ended within a duration.
type QueueStats struct {
	Queue     string        `json:"queue"`
	Completed int64         `json:"completed"`
	Failed    int64         `json:"failed"`  // for good
	Retried   int64         `json:"retried"` // runs that ended badly and were followed by another
	Lost      int64         `json:"lost"`    // runs whose lease expired, counted under failed or retried too; not of jobs that were to be cancelled
	Cancelled int64         `json:"cancelled"`
	RunTime   time.Duration `json:"run_time_ns"`  // of all runs together, but for lost and cancelled ones
	WaitTime  time.Duration `json:"wait_time_ns"` // of all completed jobs together, from run_at to the start
}

// Runs counts the runs that RunTime is to be divided by. How long a lost run
// took, nobody knows.
func (s QueueStats) Runs() int64 { return max(s.Completed+s.Failed+s.Retried-s.Lost, 0) }

// Stats returns what ended within the last span, by queue. It reads sums per
// minute, never jobs, and so rounds the span to minutes.
func (c *Client) Stats(ctx context.Context, span time.Duration) ([]QueueStats, error) {
	rows, err := c.queries.StatsByQueue(ctx, db.Interval(span))
	if err != nil {
		return nil, c.clientError("stats", err)
	}
	stats := make([]QueueStats, len(rows))
	for i, row := range rows {
		stats[i] = QueueStats{
			Queue: row.Queue, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Cancelled: row.Cancelled, RunTime: seconds(row.RunSeconds), WaitTime: seconds(row.WaitSeconds),
		}
	}
	return stats, nil
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }
