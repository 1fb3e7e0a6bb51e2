package worker

import (
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// beatRequest is what a heartbeat does besides, for queues that wait for jobs, so that an idle worker sends hardly anything
// else. For example, with a heartbeat every 10 s:
//
//	 0 s  it finds no job in the queue, and announces that the worker waits until 30 s
//	10 s  it finds no job: the poll that was due at 14 s is put off until 24 s
//	14 s  a job comes whose notification is lost
//	20 s  it finds that a job is there, and announces that the worker waits until 50 s
//	24 s  the poll claims the job
type beatRequest struct {
	looked    []string      // the queues in which it looks whether there are jobs
	announced []string      // the queues for which it announces that the worker waits
	hold      time.Duration // how long the announcements hold
	sent      time.Duration // when, by clock.SinceBoot
}

const (
	// beatSlow is how long a heartbeat may take. After one that took longer, the next does not look for jobs: while a
	// transaction is held open, such a look reads the index entries of all jobs that were claimed since.
	beatSlow = 500 * time.Millisecond
	// beatAnnouncesMax is the most queues for which a heartbeat announces. Each may wait a second for the turn.
	beatAnnouncesMax = 4
)

// beatRequest returns what the next heartbeat is to do. Its answer goes to answered.
func (w *Worker) beatRequest() (r beatRequest) {
	r.sent = clock.SinceBoot()
	if w.draining.Load() || w.isHeld() {
		return r
	}
	isSlow := time.Duration(w.beatTook.Load()) > beatSlow
	for name, q := range w.queues {
		awaits, atRest := q.awaitsJobs()
		if atRest && !isSlow && q.isPolledByHeartbeats() {
			r.looked = append(r.looked, name)
		}
		if !awaits || len(r.announced) == beatAnnouncesMax {
			continue
		}
		if hold := q.announcer.Renewal(w.beatEvery); hold > 0 && (r.hold == 0 || hold == r.hold) {
			r.announced, r.hold = append(r.announced, name), hold
		}
	}
	return r
}

// answered handles what the heartbeat has found and announced for a queue.
func (r *beatRequest) answered(q *queue, row db.WorkerBeatRow, renewed bool) {
	if row.IsEmpty {
		q.emptyAt.Store(int64(r.sent))
	}
	if !renewed {
		return
	}
	if q.announcer.Renewed(r.sent, r.hold, row.Announced); q.announcer.Watches() {
		for _, each := range q.all() {
			signal(each.ended) // it looks which transactions are open
		}
	}
}

// awaitsJobs says whether the queue, or one of those of its name, announces that it waits, and whether none of them claims
// before there is news.
func (q *queue) awaitsJobs() (awaits, atRest bool) {
	if q.worker.unnotified.Load() {
		return false, false
	}
	now := clock.SinceBoot()
	atRest = true
	for _, each := range q.all() {
		awaits = awaits || each.load.hasRoom() && !each.load.isPaced() && !each.load.isBlocked(now)
		atRest = atRest && !each.load.isBehind()
	}
	return awaits, atRest
}

// isPolledByHeartbeats says whether heartbeats come often enough to take the place of polls, and find all that a poll would.
// They do not look for jobs with a partition key, nor whether a limit has room.
func (q *queue) isPolledByHeartbeats() bool {
	interval := notifiedPollFactor * q.worker.config.PollInterval
	return q.worker.present.Load() && !q.hasTurns() && interval-interval/4 > q.worker.beatEvery
}

// hasTurns says whether the queue has limits, or jobs with partition keys.
func (q *queue) hasTurns() bool {
	settings := q.settings.Load()
	return settings.HasLimits || settings.HasKeys
}
