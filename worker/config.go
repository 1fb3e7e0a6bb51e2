package worker

import (
	"fmt"
	"log/slog"
	"time"
)

// Defaults of Config.
const (
	DefaultSlots        = 10
	DefaultPollInterval = 5 * time.Second
	DefaultDrainTimeout = 30 * time.Second
)

// Config says which jobs a worker takes and how. The zero value takes jobs
// from the queue "default".
type Config struct {
	// Queues are the queues to claim from, each with its slots: how many jobs
	// run at once. Default {"default": 10}.
	Queues map[string]int
	// Lease, when not zero, is stored as the lease of these queues before the
	// worker starts, for every worker to obey: 1 second to 30 days. Zero leaves
	// what is stored, or else 60 seconds.
	Lease time.Duration
	// PollInterval is how often an idle queue is looked at when nothing wakes
	// the worker: a third as often while notifications arrive. Default 5 seconds;
	// less some jitter.
	PollInterval time.Duration
	// PollOnly does without LISTEN. Behind a pooler that does not pass it on, the
	// worker does so by itself; see jobq.Config.Sessions.
	PollOnly bool
	// DrainTimeout is how long Run waits for running handlers when its context
	// ends. After that their contexts are cancelled and their jobs released.
	// Default 30 seconds; negative means not at all.
	DrainTimeout time.Duration
	// Reconcile says which jobs of dead workers are recovered before this one
	// claims its first. Default ReconcileHost.
	Reconcile Reconcile
	// Middleware wraps every run, the first one outermost.
	Middleware []Middleware
	// Batch says when the worker ends by itself. Default: never.
	Batch Batch
	// Logger is where the worker writes. Default slog.Default().
	Logger *slog.Logger
	// Version is shown to operators. Default "unknown".
	Version string
}

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	if len(c.Queues) == 0 {
		c.Queues = map[string]int{"default": DefaultSlots}
	}
	for name, slots := range c.Queues {
		if name == "" || len([]rune(name)) > 128 {
			return fmt.Errorf("queue name %q: must be 1 to 128 characters", name)
		}
		if slots < 1 || slots > 10_000 {
			return fmt.Errorf("queue %q: slots must be 1 to 10000, not %d", name, slots)
		}
	}
	if c.PollInterval == 0 {
		c.PollInterval = DefaultPollInterval
	}
	if c.PollInterval < time.Millisecond {
		return fmt.Errorf("poll interval must be at least 1ms, not %s", c.PollInterval)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	switch c.Reconcile {
	case "":
		c.Reconcile = ReconcileHost
	case ReconcileHost, ReconcileAll, ReconcileOff:
	default:
		return fmt.Errorf("reconcile %q: must be %q, %q or %q", c.Reconcile, ReconcileHost, ReconcileAll, ReconcileOff)
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	return nil
}
