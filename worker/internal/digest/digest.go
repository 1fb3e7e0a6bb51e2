// Package digest tells watchers what a worker does.
package digest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/watch"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// every is how long a digest gathers what happens.
	every = 100 * time.Millisecond
	// sendTimeout is how long the sending of one may take. A digest that cannot be
	// sent is dropped. Watchers see that by the sequence numbers, and read the tables.
	sendTimeout = 2 * time.Second
	// queueEventsMax and kindEventsMax bound the jobs that a digest names of one
	// queue, and of one kind in it, so that busy queues and kinds leave room for
	// others. The counts of a digest are complete in any case.
	queueEventsMax = 40
	kindEventsMax  = 20
	// digestsKept is how many digests of a worker watchers can still read: those of
	// 5 seconds or more.
	digestsKept = 50
)

// Digester gathers what happens and sends it: at most one notification every
// 100 ms, and none while nobody watches.
type Digester struct {
	worker       string       // its id
	watchedUntil atomic.Int64 // by clock.SinceBoot
	wake         chan struct{}

	mu sync.Mutex
	// guarded by mu
	next     watch.Digest
	named    map[string]int    // how many events next has, by queue
	kinds    map[[2]string]int // the same by queue and kind
	progress map[int64]int     // by job: the index in next.Events of its last report of progress

	sent []int64 // ids of digests that watchers can still read; only Run uses it
}

// New returns a digester for the worker with the id.
func New(worker string) *Digester {
	return &Digester{worker: worker, wake: make(chan struct{}, 1)}
}

// SetWatched stores for how long somebody watches from now on, as the watchers' rows say;
// 0: nobody does.
func (d *Digester) SetWatched(span time.Duration) {
	d.watchedUntil.Store(int64(clock.SinceBoot() + span))
}

// IsWatched says whether somebody watches.
func (d *Digester) IsWatched() bool { return int64(clock.SinceBoot()) < d.watchedUntil.Load() }

// begin returns the digest to add to, and leaves mu locked for the caller; or it returns
// nil, without the lock, when nobody watches.
func (d *Digester) begin() *watch.Digest {
	if !d.IsWatched() {
		return nil
	}
	d.mu.Lock()
	if d.next.AtMs == 0 {
		d.next.AtMs = time.Now().UnixMilli()
		d.next.Queues, d.progress = make(map[string]watch.Count), make(map[int64]int)
		d.named, d.kinds = make(map[string]int), make(map[[2]string]int)
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return &d.next
}

// Claimed notes that runs of the jobs have begun, or are about to.
func (d *Digester) Claimed(jobs []db.JobClaimRow) {
	digest := d.begin()
	if digest == nil {
		return
	}
	defer d.mu.Unlock()
	for i := range jobs {
		if !d.hasRoomLocked(&jobs[i], 2) { // half of the room is for ends, which tell more
			digest.More = true
			continue
		}
		d.addLocked(&jobs[i], string(jobq.StateRunning), int(jobs[i].Attempts), watch.Event{})
	}
}

// Ended notes that the database has accepted the end of a run of the job, which
// is now in the state; and whether the run counts as a failed attempt.
func (d *Digester) Ended(job *db.JobClaimRow, state string, isAttempt bool, took time.Duration) {
	digest := d.begin()
	if digest == nil {
		return
	}
	defer d.mu.Unlock()
	count := digest.Queues[job.Queue]
	attempts := int(job.Attempts)
	switch {
	case state == string(jobq.StateCompleted):
		count.Completed++
	case isAttempt:
		count.Failed++
		attempts++
	default:
		count.Others++
	}
	digest.Queues[job.Queue] = count
	if !d.hasRoomLocked(job, 1) {
		digest.More = true
		return
	}
	d.addLocked(job, state, attempts, watch.Event{TookMs: took.Milliseconds()})
}

// Progressed notes a report of a handler; a newer one takes its place.
func (d *Digester) Progressed(job *db.JobClaimRow, report *db.RunProgressParams) {
	digest := d.begin()
	if digest == nil {
		return
	}
	defer d.mu.Unlock()
	event := watch.Event{}
	if report.Percent != nil {
		event.Percent = *report.Percent
	}
	if report.Stage != nil {
		event.Stage = *report.Stage
	}
	if at, ok := d.progress[job.ID]; ok {
		digest.Events[at].Percent, digest.Events[at].Stage = event.Percent, event.Stage
		return
	}
	if len(digest.Events) < watch.EventsMax {
		d.progress[job.ID] = len(digest.Events)
		d.addLocked(job, string(jobq.StateRunning), int(job.Attempts), event)
	}
}

// hasRoomLocked says whether the digest may name one more job of this queue and kind. part is
// 1 for all of the limits, 2 for half of them.
func (d *Digester) hasRoomLocked(job *db.JobClaimRow, part int) bool {
	return len(d.next.Events) < watch.EventsMax && d.named[job.Queue] < queueEventsMax/part &&
		d.kinds[[2]string{job.Queue, job.Kind}] < kindEventsMax/part
}

// addLocked fills in the event from the job, and adds it to the digest.
func (d *Digester) addLocked(job *db.JobClaimRow, state string, attempts int, event watch.Event) {
	event.ID, event.Token, event.State, event.Attempts, event.Queue, event.Kind = job.ID, job.LeaseToken, state, attempts, job.Queue, job.Kind
	d.next.Events = append(d.next.Events, event)
	d.named[job.Queue]++
	d.kinds[[2]string{job.Queue, job.Kind}]++
}

// Run sends digests until the context ends. The first event after a quiet time
// goes out at once.
func (d *Digester) Run(ctx context.Context, queries *db.Queries, log *slog.Logger) {
	timer := time.NewTimer(every)
	defer timer.Stop()
	var sequence int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
		d.mu.Lock()
		digest := d.next
		d.next = watch.Digest{}
		d.mu.Unlock()
		if digest.AtMs > 0 {
			sequence++
			digest.Worker, digest.Sequence = d.worker, sequence
			if err := d.send(ctx, queries, &digest); err != nil {
				log.Debug("digest not sent", "error", err)
			}
		}
		timer.Reset(every)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (d *Digester) send(ctx context.Context, queries *db.Queries, digest *watch.Digest) error {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	forget := d.sent[:max(len(d.sent)-digestsKept+1, 0)]
	id, err := queries.DigestSend(ctx, digest.Encode(), forget)
	if err == nil {
		d.sent = append(d.sent[len(forget):], id)
	}
	return err
}
