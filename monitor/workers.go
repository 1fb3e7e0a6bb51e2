package monitor

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Worker is a worker process that has registered itself.
type Worker struct {
	ID       string         `json:"id"`
	Hostname string         `json:"hostname"`
	PID      int            `json:"pid"`
	Version  string         `json:"version"`
	Slots    map[string]int `json:"slots"` // by queue
	Kinds    []string       `json:"kinds"`
	// KindSlots are those of the kinds that have slots of their own, in each queue; nil if the
	// worker is of an earlier version, which does not tell.
	KindSlots map[string]int `json:"kind_slots,omitempty"`
	// Programs sums up those of the kinds that have programs for handlers, and says of all kinds why they wait.
	Programs map[string]Programs `json:"programs,omitempty"`
	Draining bool                `json:"draining"` // takes no new work, or was asked to
	// Held says that somebody holds its host, so that it claims nothing; nil: nobody does.
	Held        *Held     `json:"held,omitempty"`
	Running     int64     `json:"running"` // jobs
	Claimed     int64     `json:"claimed"` // ahead: it holds them, and they have not begun
	StartedAt   time.Time `json:"started_at"`
	HeartbeatAt time.Time `json:"heartbeat_at"`
}

// Held is who holds a host, since when and why: operator.HoldHost.
type Held struct {
	By     string    `json:"by"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
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
	// reached, the machine cannot start programs, or its runs fail while those of other workers
	// succeed, also those of Go handlers. "" for none.
	Trouble string `json:"trouble,omitempty"`
}

// HeldHost is a host whose workers claim nothing.
type HeldHost struct {
	Host string `json:"host"`
	Held
}

// heldHostsMax is how many hosts HeldHosts returns.
const heldHostsMax = 1000

// HeldHosts returns the hosts that are held, also those that have no worker now, by name: the first 1000.
func (m *Monitor) HeldHosts(ctx context.Context) ([]HeldHost, error) {
	rows, err := m.queries.HeldHostList(ctx, heldHostsMax)
	if err != nil {
		return nil, dberror.Wrap(m.schema, "list held hosts", err)
	}
	hosts := make([]HeldHost, len(rows))
	for i, row := range rows {
		hosts[i] = HeldHost{row.Host, Held{By: row.HeldBy, Reason: row.HoldReason, Since: db.Moment(row.HeldAt)}}
	}
	return hosts, nil
}

// Workers returns the registered worker processes, by id.
func (m *Monitor) Workers(ctx context.Context) ([]Worker, error) {
	rows, err := m.queries.WorkerList(ctx)
	if err != nil {
		return nil, dberror.Wrap(m.schema, "list workers", err)
	}
	workers := make([]Worker, len(rows))
	for i, row := range rows {
		workers[i] = Worker{
			ID: row.ID, Hostname: row.Hostname, PID: int(row.Pid), Version: row.Version, Kinds: row.Kinds,
			Draining: row.Draining, Running: row.Running, Claimed: row.Claimed,
			StartedAt: db.Moment(row.StartedAt), HeartbeatAt: db.Moment(row.HeartbeatAt),
		}
		if row.HeldAt != nil {
			workers[i].Held = &Held{By: row.HeldBy, Reason: row.HoldReason, Since: *db.UTC(row.HeldAt)}
		}
		// What a worker has not written as jobq does is left out: one row must not hide the others.
		_ = json.Unmarshal(row.Queues, &workers[i].Slots)
		_ = json.Unmarshal(row.KindSlots, &workers[i].KindSlots)
		_ = json.Unmarshal(row.Programs, &workers[i].Programs)
	}
	return workers, nil
}
