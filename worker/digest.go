package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/watch"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// digestEvery is how long a digest gathers what happens.
	digestEvery = 100 * time.Millisecond
	// digestTimeout bounds the sending of one. What cannot be sent is dropped:
	// the numbering shows it to watchers, who then look for themselves.
	digestTimeout = 2 * time.Second
	// queueEventsMax and kindEventsMax bound the jobs that a digest names of one
	// queue, and of one kind in it, so that what is busy leaves room for the rest:
	// of a flood, counts say more than a few names.
	queueEventsMax = 40
	kindEventsMax  = 20
	// digestsKept is how many digests of a worker watchers can still read: some
	// seconds' worth.
	digestsKept = 50
)

// digester tells watchers what the worker does: at most one notification every
// digestEvery, and none while nobody watches.
type digester struct {
	worker *Worker
	until  atomic.Int64 // of clock.SinceBoot: nobody watches later than that
	wake   chan struct{}

	mu sync.Mutex
	// guarded by mu
	next     watch.Digest
	named    map[string]int    // events of next, by queue
	kinds    map[[2]string]int // and by queue and kind
	progress map[int64]int     // of next.Events, to replace a job's earlier report

	sent []int64 // ids of digests that watchers can still read; run's own
}

func newDigester(w *Worker) *digester {
	return &digester{worker: w, wake: make(chan struct{}, 1)}
}

// watched notes for how long somebody watches, 0 for nobody, as the watchers' rows
// say.
func (d *digester) watched(span time.Duration) { d.until.Store(int64(clock.SinceBoot() + span)) }

func (d *digester) isWatched() bool { return int64(clock.SinceBoot()) < d.until.Load() }

// begin returns the digest to add to, or nil when nobody would read it. The
// caller unlocks.
func (d *digester) begin() *watch.Digest {
	if !d.isWatched() {
		return nil
	}
	d.mu.Lock()
	if d.next.AtMs == 0 {
		d.next.AtMs = time.Now().UnixMilli()
		d.next.Queues, d.progress = make(map[string]watch.Count), make(map[int64]int)
		d.named, d.kinds = make(map[string]int), make(map[[2]string]int)
		signal(d.wake)
	}
	return &d.next
}

// claimed notes that runs have begun, or are about to.
func (d *digester) claimed(runs []*Run) {
	digest := d.begin()
	if digest == nil {
		return
	}
	defer d.mu.Unlock()
	for _, run := range runs {
		if !d.hasRoom(run, 2) { // ends tell more
			digest.More = true
			continue
		}
		d.add(run, string(jobq.StateRunning), int(run.row.Attempts), watch.Event{})
	}
}

// ended notes that the database has accepted the end of a run.
func (d *digester) ended(r result, state string, counts bool) {
	run := r.run
	digest := d.begin()
	if digest == nil {
		return
	}
	defer d.mu.Unlock()
	count := digest.Queues[run.row.Queue]
	attempts := int(run.row.Attempts)
	switch {
	case state == string(jobq.StateCompleted):
		count.Completed++
	case counts:
		count.Failed++
		attempts++
	default:
		count.Others++
	}
	digest.Queues[run.row.Queue] = count
	if !d.hasRoom(run, 1) {
		digest.More = true
		return
	}
	d.add(run, state, attempts, watch.Event{TookMs: r.took().Milliseconds()})
}

// progressed notes a report of a handler; a newer one takes its place.
func (d *digester) progressed(run *Run, report *db.RunProgressParams) {
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
	if at, ok := d.progress[run.row.ID]; ok {
		digest.Events[at].Percent, digest.Events[at].Stage = event.Percent, event.Stage
		return
	}
	if len(digest.Events) < watch.EventsMax {
		d.progress[run.row.ID] = len(digest.Events)
		d.add(run, string(jobq.StateRunning), int(run.row.Attempts), event)
	}
}

// hasRoom says whether one more job of this sort may be named, in that part of
// the room. Called with mu held.
func (d *digester) hasRoom(run *Run, part int) bool {
	return len(d.next.Events) < watch.EventsMax && d.named[run.row.Queue] < queueEventsMax/part &&
		d.kinds[[2]string{run.row.Queue, run.row.Kind}] < kindEventsMax/part
}

// add completes an event. Called with mu held.
func (d *digester) add(run *Run, state string, attempts int, event watch.Event) {
	event.ID, event.Token, event.State, event.Attempts, event.Queue, event.Kind = run.row.ID, run.row.LeaseToken, state, attempts, run.row.Queue, run.row.Kind
	d.next.Events = append(d.next.Events, event)
	d.named[run.row.Queue]++
	d.kinds[[2]string{run.row.Queue, run.row.Kind}]++
}

// run sends digests until the context ends. The first event after a quiet time
// goes out at once.
func (d *digester) run(ctx context.Context) {
	timer := time.NewTimer(digestEvery)
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
			digest.Worker, digest.Sequence = d.worker.id, sequence
			d.send(ctx, &digest)
		}
		timer.Reset(digestEvery)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (d *digester) send(ctx context.Context, digest *watch.Digest) {
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	forget := d.sent[:max(len(d.sent)-digestsKept+1, 0)]
	id, err := d.worker.queries.DigestSend(ctx, digest.Encode(), forget)
	if err != nil {
		d.worker.log.Debug("digest not sent", "error", err)
		return
	}
	d.sent = append(d.sent[len(forget):], id)
}

// countsAsAttempt says whether a run that ended so used up an attempt.
func countsAsAttempt(outcome string) bool {
	return outcome == string(jobq.OutcomeFailed) || outcome == string(jobq.OutcomeTimedOut)
}
