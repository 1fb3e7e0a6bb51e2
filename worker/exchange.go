package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// exchangeTimeoutMax bounds one round trip that finishes and claims.
	exchangeTimeoutMax = 30 * time.Second
	// busyDelay is how long a result waits whose row somebody else has locked.
	busyDelay = 50 * time.Millisecond
	// refusedDelay is how long a result waits that the server refuses for a reason
	// other than its value. It is sent until its lease has ended.
	refusedDelay = time.Second
)

// exchange stores results and claims jobs, in one round trip if all is well. It
// returns false when that failed, and keeps the results for the next try.
func (q *queue) exchange(ctx context.Context, results []result, want int) bool {
	defer q.landed(want, leasesOf(results))
	if len(results) > 0 && want > 0 && q.claimsApart() {
		return q.roundTrip(ctx, results, 0) && q.roundTrip(ctx, nil, want)
	}
	return q.roundTrip(ctx, results, want)
}

func (q *queue) roundTrip(ctx context.Context, results []result, want int) bool {
	settings := q.settings()
	request := db.Exchange{Owner: q.worker.id, Lease: settings.tickerExtends(), Each: settings.heartbeat == jobq.HeartbeatProgress}
	request.Completions, request.Endings, request.Untold = split(results)
	var look look
	if want > 0 {
		request.Claim = &db.JobClaimParams{
			Lease: db.Interval(settings.lease), Owner: q.worker.id, Queue: q.name, Kinds: q.worker.externals.claimable(q.kinds),
			JobCount: int32(want), // #nosec G115 -- bounded by lookaheadMax
		}
		look = q.aim(request.Claim)
		look.partial = len(request.Claim.Kinds) < len(q.kinds)
	}
	patience := settings.lease / 2
	if len(results) > 0 { // their leases are locked meanwhile and cannot be extended
		patience = settings.lease / 4
	}
	ctx, cancel := context.WithTimeout(ctx, min(exchangeTimeoutMax, patience))
	defer cancel()
	sent := clock.SinceBoot()
	answer, err := q.worker.schema.Exchange(ctx, q.worker.pool, request)
	took := clock.SinceBoot() - sent
	if settings.tickerExtends() > 0 {
		q.worker.keeper.told(answer.Told, sent, settings)
	}
	if err == nil || errors.Is(err, db.ErrBusy) {
		q.tellLater(results, answer.Untold)
	}
	if errors.Is(err, db.ErrBusy) {
		results, err = q.setAside(results, answer.Busy, busyDelay), nil
	}
	if err != nil {
		onRow(results, answer)
		results = q.accountStored(results, answer)
		if len(answer.Claimed) > 0 { // only what was asked a second time has failed
			q.observeClaim(answer.Claimed, look, took)
			q.accept(answer.Claimed, sent, settings)
		} else if want > 0 {
			q.claimFailed(look, took, db.IsTimeout(err))
		}
		if len(results) > 0 && !db.IsTransient(err) && ctx.Err() == nil {
			q.storeApart(ctx, results)
			return true
		}
		q.putBack(results)
		q.worker.databaseTrouble(err)
		return false
	}
	q.worker.databaseAnswered()
	q.account(results, answer)
	if want > 0 {
		q.observeClaim(answer.Claimed, look, took)
		q.accept(answer.Claimed, sent, settings)
	}
	return true
}

// onRow notes which ends may be stored on their own rows already, by a second try
// of which no answer came: in their leases they would be counted once more.
func onRow(results []result, answer db.Exchanged) {
	for _, r := range results {
		if r.completion != nil && slices.Contains(answer.OnRow, r.run.row.ID) {
			r.completion.OnRow = true
		}
	}
}

// setAside keeps results that the database cannot take now, as when somebody else
// has locked their rows, to be sent again after a delay. It returns the others,
// which need not wait for these.
func (q *queue) setAside(results []result, busy []int64, delay time.Duration) (others []result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy) == 0 { // else what is busy already would wait on and on
		q.busyTo = clock.SinceBoot() + delay
	}
	for _, r := range results {
		if !r.isUntold() && slices.Contains(busy, r.run.row.ID) {
			q.busy = append(q.busy, r)
		} else {
			others = append(others, r)
		}
	}
	return others
}

// tellLater keeps those of the results that are stored and of which somebody has
// kept the lease from being told.
func (q *queue) tellLater(results []result, untold []db.Slot) {
	if len(untold) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.busy) == 0 {
		q.busyTo = clock.SinceBoot() + busyDelay
	}
	for _, r := range results {
		if slices.Contains(untold, r.run.slot()) {
			q.busy = append(q.busy, result{run: r.run})
		}
	}
}

// leasesOf are the leases of the runs.
func leasesOf(results []result) []int64 {
	var ids []int64
	for i, r := range results {
		if id := r.run.row.LeaseToken; i == 0 || id != results[i-1].run.row.LeaseToken {
			ids = append(ids, id)
		}
	}
	return ids
}

// landed ends a round trip, which has told the leases what has ended.
func (q *queue) landed(want int, told []int64) {
	q.mu.Lock()
	q.flying--
	q.asked -= want
	for _, id := range told {
		delete(q.telling, id)
	}
	later := q.later
	q.later = nil
	for _, r := range later {
		q.sortInLocked(r)
	}
	q.mu.Unlock()
	signal(q.ended)
}

// sortInLocked adds a result to those that travel next, or to those that wait for
// a round trip to land: two at once would meet at the row of the lease.
func (q *queue) sortInLocked(r result) {
	if _, ok := q.telling[r.run.row.LeaseToken]; ok {
		q.later = append(q.later, r)
		return
	}
	q.results = append(q.results, r)
}

// accept hands claimed jobs to the slots, first in line first.
func (q *queue) accept(claimed []db.JobClaimRow, sent time.Duration, settings queueSettings) {
	if len(claimed) == 0 {
		return
	}
	slices.SortFunc(claimed, func(a, b db.JobClaimRow) int {
		if a.Priority != b.Priority {
			return int(a.Priority) - int(b.Priority)
		}
		if a.Position.Int64 < b.Position.Int64 {
			return -1
		}
		return 1
	})
	runs := make([]*Run, len(claimed))
	for i, row := range claimed {
		runs[i] = &Run{worker: q.worker, row: row, claimedAt: sent}
	}
	q.worker.keeper.add(q, runs, sent, settings)
	q.worker.counts.claimed.Add(int64(len(runs)))
	q.worker.digests.claimed(runs)
	q.mu.Lock()
	q.inHand += len(runs)
	q.movedAt = clock.SinceBoot()
	q.mu.Unlock()
	for _, run := range runs {
		q.buffer <- run // has room: no more is claimed than fits
	}
}

// putBack returns results that could not be stored.
func (q *queue) putBack(results []result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range results {
		results[i].retried = true
	}
	q.results = append(results, q.results...)
}
