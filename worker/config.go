package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jobq-dev/jobq/janitor"
)

// Defaults of Config.
const (
	DefaultSlots        = 10
	DefaultPollInterval = 5 * time.Second
	DefaultDrainTimeout = 30 * time.Second
	// DefaultFailUnreadableAfter gives people a day to bring a key that is missing everywhere.
	DefaultFailUnreadableAfter = 24 * time.Hour
	DefaultRestAfterFailures   = 5
)

// QueueConfig is how a worker works on a queue. The zero value means the defaults.
type QueueConfig struct {
	// Slots is how many jobs of the queue run at once in this worker: 1 to 10,000.
	// Default 10 (DefaultSlots). Kinds with slots of their own are not among them:
	// see HandleOptions.
	Slots int
	// NoClaimAhead has the worker claim a job only when a slot is free for it. Otherwise
	// it also claims the jobs that it will begin in the next 50 ms, so that short jobs
	// need not wait for claims. If it is killed, jobs that it has claimed and not begun
	// lose no attempt, but they wait until its lease ends. Default false.
	NoClaimAhead bool
}

// Config says which jobs a worker takes and how. The zero value takes jobs
// from the queue "default".
type Config struct {
	// Queues are the queues to claim from, by name: 1 to 128 characters. Default:
	// the queue "default", with the defaults of QueueConfig.
	Queues map[string]QueueConfig
	// Lease is stored as the lease of these queues before the worker starts, for every
	// worker to obey: 1 second to 30 days. Default 0: what is stored, or else 60
	// seconds (jobq.DefaultLease).
	Lease time.Duration
	// PollInterval is how often an idle queue is looked at when nothing wakes
	// the worker, less up to a quarter at random, and a third as often while
	// notifications arrive: 1 millisecond or more. Default 5 seconds
	// (DefaultPollInterval).
	PollInterval time.Duration
	// PollOnly does without LISTEN. Behind a pooler that does not pass it on, the
	// worker does so by itself; see jobq.Config.Sessions. Default false.
	PollOnly bool
	// DrainTimeout is how long Run waits for running handlers when its context
	// ends. After that their contexts are cancelled and their jobs released.
	// Default 30 seconds (DefaultDrainTimeout); negative means not at all.
	DrainTimeout time.Duration
	// Timeout ends runs that take longer, of jobs and kinds that have no timeout of their own: see
	// HandleOptions.Timeout. It counts as a failed attempt. Default 0: none. Not negative.
	Timeout time.Duration
	// FailUnreadableAfter is how long a job waits that no worker can decode, and whose key no
	// other worker has, before it fails for good. Meanwhile it uses no attempt. Default 24
	// hours (DefaultFailUnreadableAfter); negative: it waits for ever.
	FailUnreadableAfter time.Duration
	// RestAfterFailures is after how many failed runs in a row, without a completed one between them, the worker
	// looks whether other workers' runs of the kind succeed. If they do, it leaves the kind to them for
	// 30 seconds, then tries one job, and rests twice as long after each that fails, an hour at most. So a
	// machine that is broken does not fail all jobs. A DiscardError does not count. Default 5
	// (DefaultRestAfterFailures); negative: never.
	RestAfterFailures int
	// Reconcile says which jobs of dead workers are recovered before this one
	// claims its first. Default ReconcileHost.
	Reconcile Reconcile
	// Janitor changes how the janitor works that Run runs beside the worker. A Logger in
	// it that is nil is the worker's. Default nil: the defaults of janitor.Config.
	Janitor *janitor.Config
	// NoJanitor leaves it out, for workers beside which another janitor runs, such as
	// `jobq janitor`. Without any, retries and scheduled jobs do not start, and jobs of dead
	// workers stay running. A worker that hears of none warns within 30 seconds. Default false.
	NoJanitor bool
	// Middleware wraps every run, the first one outermost. Default: none.
	Middleware []Middleware
	// OnFailure is told of each run of this worker that has failed or timed out, such as to send it to Sentry, when that is
	// stored: whatever runs the job, a Go handler or a program. A run that was lost with its lease is none of these.
	// It cannot change how the run has ended; a Middleware can. It is called from 8 goroutines beside the slots, which
	// never wait for it. The context of a call ends after 5 seconds. If 1,000 failures wait for a call, the
	// worker logs those that follow instead. Run waits 5 seconds for the last calls. A panic is logged. Default nil: nobody is told.
	OnFailure func(ctx context.Context, failure Failure)
	// Batch says when the worker ends by itself. Default: never.
	Batch Batch
	// Logger is where the worker writes. Default slog.Default().
	Logger *slog.Logger
	// Version is shown to operators. Default "unknown".
	Version string
}

// complete fills in defaults and refuses what cannot work.
func (c *Config) complete() error {
	queues := make(map[string]QueueConfig, max(len(c.Queues), 1)) // the caller's map stays as it is
	maps.Copy(queues, c.Queues)
	if len(queues) == 0 {
		queues["default"] = QueueConfig{}
	}
	for name, queue := range queues {
		if name == "" || len([]rune(name)) > 128 {
			return fmt.Errorf("queue name %q: must be 1 to 128 characters", name)
		}
		queue.Slots = cmp.Or(queue.Slots, DefaultSlots)
		if queue.Slots < 1 || queue.Slots > slotsMax {
			return fmt.Errorf("queue %q: slots must be 1 to %d, not %d", name, slotsMax, queue.Slots)
		}
		queues[name] = queue
	}
	c.Queues = queues
	if c.PollInterval == 0 {
		c.PollInterval = DefaultPollInterval
	}
	if c.PollInterval < time.Millisecond {
		return fmt.Errorf("poll interval must be at least 1ms, not %s", c.PollInterval)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	c.RestAfterFailures = cmp.Or(c.RestAfterFailures, DefaultRestAfterFailures)
	c.FailUnreadableAfter = cmp.Or(c.FailUnreadableAfter, DefaultFailUnreadableAfter)
	if c.Timeout < 0 {
		return fmt.Errorf("timeout must not be negative: %s", c.Timeout)
	}
	if c.Batch.TimeLimit < 0 || c.Batch.MaxConsecutiveFailures < 0 {
		return errors.New("batch: the time limit and the number of failures must not be negative")
	}
	if c.NoJanitor && c.Janitor != nil {
		return errors.New("NoJanitor and Janitor exclude each other")
	}
	for i, middleware := range c.Middleware {
		if middleware == nil {
			return fmt.Errorf("middleware %d is nil", i)
		}
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
