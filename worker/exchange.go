package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

const (
	// exchangeTimeoutMax is the longest time of a round trip that stores results and claims
	// jobs. It has less where leases are short.
	exchangeTimeoutMax = 30 * time.Second
	// busyDelay is how long a result waits for its next try when another session has locked
	// its row.
	busyDelay = 50 * time.Millisecond
	// refusedDelay is how long a result waits for its next try when the server has refused it
	// for a reason other than its value. The tries end when its lease has ended.
	refusedDelay = time.Second
)

// exchange does the work, mostly in one round trip; in two when the planner
// wants claims to be separate. It returns false when the database could not be used: then the
// results are kept for the next try, and the caller should wait before it.
func (q *queue) exchange(ctx context.Context, next work) bool {
	recorded := leasesOf(next.results)
	for _, b := range next.begin {
		recorded = append(recorded, b.Token)
	}
	defer func() {
		q.load.roundTripEnded(next.count, recorded)
		signal(q.ended)
	}()
	if len(recorded) > 0 && next.count > 0 && q.load.isSeparate() {
		return q.roundTrip(ctx, work{results: next.results, begin: next.begin}) && q.roundTrip(ctx, work{count: next.count})
	}
	return q.roundTrip(ctx, next)
}

func (q *queue) roundTrip(ctx context.Context, next work) bool {
	results, count := next.results, next.count
	settings := q.settings.Load()
	request := db.Exchange{
		Owner: q.worker.id, Queue: q.name, Lease: settings.TickerExtends(),
		HasLimits: settings.HasLimits, HasKeys: settings.HasKeys, EndedKeys: partitionKeys(results), Begin: next.begin,
	}
	request.Completions, request.Endings, request.Unrecorded = split(results)
	var claim *claim
	if count > 0 {
		claim = q.newClaim(count, settings)
		request.SlotsFree, request.BeginSoon = q.load.promise(count)
		defer q.load.fulfilled(request.SlotsFree)
		request.ClaimsAhead = count > request.SlotsFree
		claim.begun, claim.begunSoon = request.BeginCounts()
		request.Claim, request.OnlyKeyed, request.LanePass, request.Sharing = &claim.request, !claim.plain, claim.keys.pass, claim.keys.sharing
	}
	patience := settings.Length / 2
	if len(results)+len(next.begin) > 0 { // the round trip locks their leases, so that they cannot be extended meanwhile
		patience = settings.Length / 4
	}
	ctx, cancel := context.WithTimeout(ctx, min(exchangeTimeoutMax, patience))
	defer cancel()
	sent := clock.SinceBoot()
	answer, err := q.worker.schema.Exchange(ctx, q.worker.pool, request)
	took := clock.SinceBoot() - sent
	q.load.exchanged(took)
	q.began(next.begin, answer.Begun, err)
	if settings.TickerExtends() > 0 {
		q.worker.keeper.held.Extended(answer.Recorded, settings, sent)
	}
	if err == nil || errors.Is(err, db.ErrBusy) {
		q.load.keepUnrecorded(clock.SinceBoot(), results, answer.Unrecorded)
	}
	if errors.Is(err, db.ErrBusy) {
		results, err = q.load.setAside(clock.SinceBoot(), results, answer.Busy, busyDelay), nil
	}
	switch {
	case claim == nil:
	// With jobs, the claim has committed, and only the second try of some results has failed.
	case err == nil || len(answer.Claimed)+len(answer.Keyed) > 0:
		claim.answered(answer, sent, took)
	default:
		claim.failed(took, err)
		if db.MayBeUnreadable(err) {
			q.apart.look(err)
		}
	}
	if err != nil {
		return q.keepUnstored(ctx, results, answer, err)
	}
	q.worker.databaseAnswered()
	q.account(results, answer)
	return true
}

// keepUnstored handles the results of a round trip that failed. If the server refused them
// together, it stores them one by one and returns true. Otherwise it keeps them for the next
// try and returns false: the caller should wait before that.
func (q *queue) keepUnstored(ctx context.Context, results []result, answer db.Exchanged, err error) bool {
	onRow(results, answer)
	results = q.accountStored(results, answer)
	if len(results) > 0 && !db.IsTransient(err) && ctx.Err() == nil {
		q.storeEach(ctx, results)
		return true
	}
	q.load.putBack(results)
	q.worker.databaseTrouble(err)
	return false
}

// onRow marks the completions that a second try without an answer may have stored on the jobs'
// own rows. They must be sent to their own rows again: a lease would count them once more.
func onRow(results []result, answer db.Exchanged) {
	for _, r := range results {
		if r.completion != nil && slices.Contains(answer.OnRow, r.run.row.ID) {
			r.completion.OnRow = true
		}
	}
}

// partitionKeys are the partition keys of the runs, sorted, each once.
func partitionKeys(results []result) (keys []string) {
	for _, r := range results {
		if r.run.partitionKey != "" {
			keys = append(keys, r.run.partitionKey)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// leasesOf are the tokens of the runs' leases. Neighbours with the same lease give it once; a
// lease can still appear several times.
func leasesOf(results []result) []int64 {
	var ids []int64
	for i, r := range results {
		if id := r.run.row.LeaseToken; i == 0 || id != results[i-1].run.row.LeaseToken {
			ids = append(ids, id)
		}
	}
	return ids
}
