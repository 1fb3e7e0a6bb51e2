package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobq-dev/jobq/monitor"
)

const (
	// readEvery is the shortest time between two readings of the database, however
	// often Prometheus scrapes.
	readEvery = 5 * time.Second
	// readTimeout is the longest time of a reading, and scrapeTimeout how long a scrape
	// waits for one.
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
	queueSlots  = gauge("jobq_queue_slots", "Slots of the workers that live, do not drain and are not held.", "queue")
	queuePaused = gauge("jobq_queue_paused", "Whether the queue is paused.", "queue")
	queueEnded  = counter("jobq_queue_ended_total",
		"Runs that ended in all workers since this process first read the database. Lost ones are also retried, failed or cancelled.", "queue", "outcome")
	kindEnded = counter("jobq_kind_ended_total",
		"The same by kind, in all queues; beyond 100 kinds, kind other.", "kind", "outcome")
	jobsAdded = counter("jobq_jobs_added_total",
		"Ids that new jobs were given, also those of transactions that rolled back and of duplicates.")
)

// Database is a collector of a database's figures, of at most 1000 queues. It
// reads them with bounded queries, at most every 5 seconds, during a scrape. It is
// safe for concurrent use.
type Database struct {
	queues  func(context.Context) ([]monitor.Queue, error)
	minutes func(context.Context, time.Duration) ([]monitor.Minute, error)
	kinds   func(context.Context, time.Duration) ([]monitor.KindMinute, error)
	added   func(context.Context) (int64, error)

	mu sync.Mutex
	// guarded by mu
	last    reading
	tried   time.Time
	ofQueue ends
	ofKind  ends
	pending chan struct{} // closed when the reading under way has ended; nil while none is
}

// reading is what was last read.
type reading struct {
	queues  []monitor.Queue
	ended   []total // by queue
	endedOf []total // by kind
	added   int64
	at      time.Time // of the last success
	up      bool
}

// NewDatabase returns a collector of what the monitor can read. It does not talk
// to the database. A scrape waits up to 2 seconds for it; if it does not answer,
// the scrape has the last figures, and jobq_up is 0.
func NewDatabase(m *monitor.Monitor) *Database {
	return &Database{
		queues: m.Queues, minutes: m.Minutes, kinds: m.KindMinutes, added: m.Added,
		ofQueue: ends{namesMax: queuesMax}, ofKind: ends{namesMax: kindsMax},
	}
}

// Describe implements prometheus.Collector.
func (d *Database) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []metric{up, readAt, queueAge, queueJobs, queueSlots, queuePaused, queueEnded, kindEnded, jobsAdded} {
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
		queueJobs.send(to, float64(q.Held()), q.Name, "running")
		queueSlots.send(to, float64(q.Slots), q.Name)
		queuePaused.send(to, bit(q.PausedAt != nil), q.Name)
	}
	for _, queue := range last.ended {
		queue.send(to, queueEnded)
	}
	for _, kind := range last.endedOf {
		kind.send(to, kindEnded)
	}
	jobsAdded.send(to, float64(last.added))
}

// Problems is for Handler. It says in words that the database cannot be read; nil if it
// can be.
func (d *Database) Problems() []string {
	if d.read(scrapeTimeout).up {
		return nil
	}
	return []string{"the database does not answer"}
}

// read returns the last reading. If a new one is due or under way, it first waits for
// that, for at most patience.
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

// readNow reads the database. The end of a scrape does not end it, since other scrapes wait for
// it as well.
func (d *Database) readNow() {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	d.mu.Lock()
	span := d.ofQueue.span(time.Since(d.last.at))
	d.mu.Unlock()
	queues, err := d.queues(ctx)
	var minutes []monitor.Minute
	if err == nil {
		minutes, err = d.minutes(ctx, span)
	}
	var kinds []monitor.KindMinute
	if err == nil {
		kinds, err = d.kinds(ctx, span)
	}
	var added int64
	if err == nil {
		added, err = d.added(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.last.up = err == nil; err == nil {
		d.ofQueue.add(ofQueues(minutes))
		d.ofKind.add(ofKinds(kinds))
		d.last.ended, d.last.endedOf = d.ofQueue.copies(), d.ofKind.copies()
		d.last.queues, d.last.added, d.last.at = queues, added, time.Now()
	}
	close(d.pending)
	d.pending = nil
}
