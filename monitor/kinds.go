package monitor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Kind is a kind of job: who handles it, what became of its jobs within the last hour,
// and whether it is paused.
type Kind struct {
	Name    string `json:"name"`
	Workers int64  `json:"workers"` // live ones that have the kind, and do not drain

	// Available is how many jobs of it wait for a worker, and AvailableMore that there may be more: of each queue
	// the first jobs of its lines are looked at, 200 at most.
	Available     int64 `json:"available"`
	AvailableMore bool  `json:"available_more,omitempty"`

	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
	Retried   int64 `json:"retried"`
	Lost      int64 `json:"lost"` // of those that were retried or have failed

	// Crashes is how many times in a row workers have crashed that ran it: see
	// Settings.QuarantineCrashes.
	Crashes     int        `json:"crashes"`
	CrashedAt   *time.Time `json:"crashed_at,omitempty"`
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"` // "jobq" for a quarantine
	PauseReason string     `json:"pause_reason,omitempty"`

	KindSettings
}

// KindSettings are what people have set for a kind with SetKind of package operator, and else the defaults of all kinds.
// Queue to BackoffMax hold for each new job whose producer gives none; jobs that are there keep theirs.
type KindSettings struct {
	Queue       string        `json:"queue"`                // default jobq.DefaultQueue
	Priority    int16         `json:"priority"`             // default 0
	MaxAttempts int           `json:"max_attempts"`         // default jobq.DefaultMaxAttempts
	Timeout     time.Duration `json:"timeout_ns,omitempty"` // default 0: none
	BackoffBase time.Duration `json:"backoff_base_ns"`      // default jobq.DefaultBackoffBase
	BackoffMax  time.Duration `json:"backoff_max_ns"`       // default jobq.DefaultBackoffMax
	Owner       string        `json:"owner,omitempty"`      // who is responsible for the kind; default none
	Runbook     string        `json:"runbook,omitempty"`    // what to do when its jobs fail, such as a URL; default none
}

// DefaultKindSettings are the settings of a kind for which nobody has set any.
func DefaultKindSettings() KindSettings {
	return KindSettings{
		Queue: jobq.DefaultQueue, MaxAttempts: jobq.DefaultMaxAttempts,
		BackoffBase: jobq.DefaultBackoffBase, BackoffMax: jobq.DefaultBackoffMax,
	}
}

// kindsMax bounds the kinds of Kinds, and kindsLook how many available jobs of each queue are looked at for kinds.
const kindsMax, kindsLook = 1000, 200

// Kinds returns the kinds that live workers have, or of which jobs have ended within the
// last hour, or that are paused, have settings, or have crashed workers of late: up to 1000, by name. So are kinds of
// which jobs only wait, as far as they are among the first available jobs of their queue.
func (m *Monitor) Kinds(ctx context.Context) ([]Kind, error) {
	rows, err := m.queries.KindList(ctx, kindsMax, db.Interval(time.Hour))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "kinds", err)
	}
	waiting, err := m.queries.DoctorWaiting(ctx, kindsLook, db.Interval(time.Minute))
	if err != nil {
		return nil, dberror.Wrap(m.schema, "kinds that wait", err)
	}
	kinds := make(map[string]Kind, len(rows))
	for _, row := range rows {
		kinds[row.Name] = Kind{
			Name: row.Name, Workers: row.Workers, Completed: row.Completed, Failed: row.Failed, Retried: row.Retried, Lost: row.Lost,
			Crashes: int(row.Crashes), CrashedAt: db.UTC(row.CrashedAt), PausedAt: db.UTC(row.PausedAt),
			PausedBy: db.Text(row.PausedBy), PauseReason: db.Text(row.PauseReason),
			KindSettings: KindSettings{
				Queue: row.Queue, Priority: row.Priority, MaxAttempts: int(row.MaxAttempts), Timeout: db.Milliseconds(row.TimeoutMs),
				BackoffBase: cmp.Or(db.Milliseconds(row.BackoffBaseMs), jobq.DefaultBackoffBase),
				BackoffMax:  cmp.Or(db.Milliseconds(row.BackoffMaxMs), jobq.DefaultBackoffMax),
				Owner:       row.Owner, Runbook: row.Runbook,
			},
		}
	}
	for _, row := range waiting {
		kind, listed := kinds[row.Kind]
		if !listed { // then it has no settings either
			kind = Kind{Name: row.Kind, KindSettings: DefaultKindSettings()}
		}
		kind.Available += row.Jobs
		kind.AvailableMore = kind.AvailableMore || row.More
		kinds[row.Kind] = kind
	}
	sorted := slices.SortedFunc(maps.Values(kinds), func(a, b Kind) int { return cmp.Compare(a.Name, b.Name) })
	return sorted[:min(len(sorted), kindsMax)], nil
}

// Served says whether a worker has had the queue, and which of the kinds in it: whether one is registered now, or
// has ended a run within 30 days. Other names may be mistakes, or of workers that are yet to be started.
func (m *Monitor) Served(ctx context.Context, queue string, kinds ...string) (served bool, known []string, err error) {
	row, err := m.queries.QueueServed(ctx, kinds, queue)
	return row.Served, row.Kinds, dberror.Wrap(m.schema, "workers of queue", err)
}
