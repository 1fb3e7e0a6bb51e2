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
func (q *queue) exchange(ctx context.Context, results []result, count int) bool {
	told := leasesOf(results)
	defer func() {
		q.load.landed(count, told)
		signal(q.ended)
	}()
	if len(results) > 0 && count > 0 && q.load.isSeparate() {
		return q.roundTrip(ctx, results, 0) && q.roundTrip(ctx, nil, count)
	}
	return q.roundTrip(ctx, results, count)
}

func (q *queue) roundTrip(ctx context.Context, results []result, count int) bool {
	settings := q.settings.Load()
	request := db.Exchange{
		Owner: q.worker.id, Queue: q.name, Lease: settings.TickerExtends(), Each: settings.Heartbeat == jobq.HeartbeatProgress,
		HasLimits: settings.HasLimits, SlotsFree: q.load.free(count), HasKeys: settings.HasKeys, EndedKeys: partitionKeys(results),
	}
	request.Completions, request.Endings, request.Untold = split(results)
	var claim *claim
	if count > 0 {
		claim = q.newClaim(count, settings)
		request.Claim, request.OnlyKeyed, request.LanePass, request.Sharing = &claim.request, !claim.plain, claim.keys.pass, claim.keys.sharing
	}
	patience := settings.Length / 2
	if len(results) > 0 { // their leases are locked meanwhile and cannot be extended
		patience = settings.Length / 4
	}
	ctx, cancel := context.WithTimeout(ctx, min(exchangeTimeoutMax, patience))
	defer cancel()
	sent := clock.SinceBoot()
	answer, err := q.worker.schema.Exchange(ctx, q.worker.pool, request)
	took := clock.SinceBoot() - sent
	if settings.TickerExtends() > 0 {
		q.worker.keeper.held.Extended(answer.Told, settings, sent)
	}
	if err == nil || errors.Is(err, db.ErrBusy) {
		q.load.keepUntold(clock.SinceBoot(), results, answer.Untold)
	}
	if errors.Is(err, db.ErrBusy) {
		results, err = q.load.setAside(clock.SinceBoot(), results, answer.Busy, busyDelay), nil
	}
	switch {
	case claim == nil:
	case err == nil || len(answer.Claimed)+len(answer.Keyed) > 0: // else only what was asked a second time has failed
		claim.answered(answer, sent, took)
	default:
		claim.failed(took, err)
	}
	if err != nil {
		return q.keepUnstored(ctx, results, answer, err)
	}
	q.worker.databaseAnswered()
	q.account(results, answer)
	return true
}

// keepUnstored keeps what a failed round trip may not have stored, for the next try.
// Where the server has refused the results together, it stores them one by one. It
// says whether the next round trip can follow at once.
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

// onRow notes which ends may be stored on their own rows already, by a second try
// of which no answer came: in their leases they would be counted once more.
func onRow(results []result, answer db.Exchanged) {
	for _, r := range results {
		if r.completion != nil && slices.Contains(answer.OnRow, r.run.row.ID) {
			r.completion.OnRow = true
		}
	}
}

// partitionKeys are the keys of the runs, each once.
func partitionKeys(results []result) (keys []string) {
	for _, r := range results {
		if r.run.partitionKey != "" {
			keys = append(keys, r.run.partitionKey)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
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
