package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobq-dev/jobq/monitor"
)

const (
	// readEvery is the least time between two readings of the database, however
	// often it is scraped.
	readEvery = 5 * time.Second
	// readTimeout ends a reading, and scrapeTimeout a scrape's wait for it.
	readTimeout   = 10 * time.Second
	scrapeTimeout = 2 * time.Second
)

var (
	up       = gauge("jobq_up", "Whether the last reading of the database succeeded and none hangs.")
	readAt   = gauge("jobq_read_timestamp_seconds", "When the database was last read, as Unix time.")
	queueAge = gauge("jobq_queue_head_age_seconds",
		"For how long the oldest available job could have run, 0 if there is none.", "queue")
	queueJobs = gauge("jobq_queue_jobs",
		"Jobs that are waiting for others, scheduled, available or running, each counted up to a bound.", "queue", "state")
	queueSlots  = gauge("jobq_queue_slots", "Slots of the workers that live and do not drain.", "queue")
	queuePaused = gauge("jobq_queue_paused", "Whether the queue is paused.", "queue")
)

// Database is a collector of a database's figures, of at most 1000 queues. It
// reads them with one bounded query, at most every 5 seconds, during a scrape. It is
// safe for concurrent use.
type Database struct {
	queues func(context.Context) ([]monitor.Queue, error)

	mu      sync.Mutex
	last    reading
	tried   time.Time
	pending chan struct{} // closed when the reading under way has ended; nil while none is
}

// reading is what was last read.
type reading struct {
	queues []monitor.Queue
	at     time.Time // of the last success
	up     bool
}

// NewDatabase returns a collector of what the monitor can read. It does not talk
// to the database. A scrape waits up to 2 seconds for it; if it does not answer,
// the scrape has the last figures, and jobq_up is 0.
func NewDatabase(m *monitor.Monitor) *Database { return &Database{queues: m.Queues} }

// Describe implements prometheus.Collector.
func (d *Database) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{up, readAt, queueAge, queueJobs, queueSlots, queuePaused} {
		to <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (d *Database) Collect(to chan<- prometheus.Metric) {
	last := d.read(scrapeTimeout)
	up.send(to, bit(last.up))
	if last.at.IsZero() {
		return // nothing is known
	}
	readAt.send(to, unix(last.at))
	for _, q := range last.queues {
		age := time.Duration(0)
		if q.HeadRunAt != nil {
			age = max(last.at.Sub(*q.HeadRunAt), 0)
		}
		queueAge.send(to, age.Seconds(), q.Name)
		queueJobs.send(to, float64(q.Available), q.Name, "available")
		queueJobs.send(to, float64(q.Scheduled), q.Name, "scheduled")
		queueJobs.send(to, float64(q.Waiting), q.Name, "waiting")
		queueJobs.send(to, float64(q.Running), q.Name, "running")
		queueSlots.send(to, float64(q.Slots), q.Name)
		queuePaused.send(to, bit(q.PausedAt != nil), q.Name)
	}
}

// Problems says in words that the database cannot be read, for Handler; nil if it
// can be.
func (d *Database) Problems() []string {
	if d.read(scrapeTimeout).up {
		return nil
	}
	return []string{"the database does not answer"}
}

// read returns the last reading, after it has begun a new one if that is due, and
// waited for it.
func (d *Database) read(patience time.Duration) reading {
	d.mu.Lock()
	if d.pending == nil && (d.tried.IsZero() || time.Since(d.tried) >= readEvery) {
		d.pending, d.tried = make(chan struct{}), time.Now()
		go d.readNow()
	}
	pending := d.pending
	d.mu.Unlock()
	hangs := false
	if pending != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-pending:
		case <-timer.C:
			hangs = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.last
	last.up = last.up && !hangs
	return last
}

// readNow reads the database. It is not bound to a scrape: others wait for it too.
func (d *Database) readNow() {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	queues, err := d.queues(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.up = err == nil; err == nil {
		d.last.queues, d.last.at = queues, time.Now()
	}
	close(d.pending)
	d.pending = nil
}
