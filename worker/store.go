package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/worker/internal/clock"
)

// split sorts results in place by job id, the order in which their rows are locked, and runs of
// one job by token. Then it divides them by what the exchange has to store.
func split(results []result) (completions []db.Completion, endings []db.Ending, unrecorded []db.Slot) {
	completions = make([]db.Completion, 0, len(results))
	slices.SortFunc(results, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.run.row.ID, b.run.row.ID), cmp.Compare(a.run.row.LeaseToken, b.run.row.LeaseToken))
	})
	now := clock.SinceBoot()
	for _, r := range results {
		switch {
		case r.completion != nil:
			completion := *r.completion
			completion.Retried = r.retried
			completion.OnRow = completion.OnRow || now-r.run.claimedAt > plainMax
			completions = append(completions, completion)
		case r.ending != nil:
			endings = append(endings, *r.ending)
		default:
			unrecorded = append(unrecorded, r.run.slot())
		}
	}
	return completions, endings, unrecorded
}

// account counts and logs each result by whether the database has accepted it. The results must
// be sorted by split. Of several runs of one job, only the last can have been accepted: the
// others lost their leases when the job was claimed again.
func (q *queue) account(results []result, answer db.Exchanged) {
	if len(results) == 0 {
		return
	}
	accepted := make(map[int64]string, len(results))
	for _, id := range answer.Completed {
		accepted[id] = string(jobq.StateCompleted)
	}
	for _, ended := range answer.Ended {
		accepted[ended.ID] = ended.State
	}
	for i, r := range results {
		state, ok := accepted[r.run.row.ID]
		later := results[i+1:]
		ok = ok && (len(later) == 0 || later[0].run.row.ID != r.run.row.ID)
		switch {
		case r.isUnrecorded(): // it was counted when its end was stored
		case r.run.endsItself && (!ok || state == string(jobq.StateCompleted)), // not by what the worker has sent
			r.run.mayHaveEnded.Load() && !ok:
			q.accountRefused(r)
		case ok && (r.completion != nil || state == string(jobq.StateCompleted)): // its own transaction may have completed it after all
			q.worker.counts.completed.Add(1)
			q.worker.digests.Ended(&r.run.row, state, false, r.took())
		case ok:
			q.worker.counts.ended(r.ending.Outcome)
			q.worker.digests.Ended(&r.run.row, state, r.failed(), r.took())
			q.worker.logEnding(r, state)
			q.worker.tellFailure(r, state == string(jobq.StateFailed))
		case r.retried:
			// The try before may have stored it.
			q.worker.log.Warn("result refused, or stored before the connection broke", r.run.logAttrs()...)
			q.worker.tellFailure(r, r.failed() && (r.ending.Final || r.run.Attempt() >= r.run.MaxAttempts()))
		default:
			q.worker.counts.lost.Add(1)
			q.worker.log.Warn("result refused, lease lost", r.run.logAttrs()...)
		}
	}
}

// accountStored is account for an exchange whose second try has failed. It returns the results
// that the first try has not stored.
func (q *queue) accountStored(results []result, answer db.Exchanged) (rest []result) {
	if len(answer.Completed) == 0 && len(answer.Ended) == 0 {
		return results
	}
	known := make(map[int64]bool, len(answer.Completed)+len(answer.Ended))
	for _, id := range answer.Completed {
		known[id] = true
	}
	for _, ended := range answer.Ended {
		known[ended.ID] = true
	}
	var stored []result
	for _, r := range results {
		if known[r.run.row.ID] {
			stored = append(stored, r)
		} else {
			rest = append(rest, r)
		}
	}
	q.load.keepUnrecorded(clock.SinceBoot(), stored, answer.Unrecorded)
	q.account(stored, answer)
	return rest
}

// storeEach stores results one by one, after the database has refused them together for a reason
// that may not pass. If a value is at fault, such as a result with a NUL in it, the run becomes
// a failed attempt. Any other refusal is not the fault of the run, so its result is kept for
// another try. Either way, the other results are stored.
func (q *queue) storeEach(ctx context.Context, results []result) {
	for _, r := range results {
		err := q.storeOne(ctx, r)
		if db.IsBadValue(err) {
			r = r.unstorable(err)
			if err = q.storeOne(ctx, r); db.IsBadValue(err) { // the reason is refused as well
				q.worker.log.Error("result dropped", append(r.run.logAttrs(), "error", err)...)
				r = r.unstorable(errors.New("see the worker's log"))
				err = q.storeOne(ctx, r)
			}
		}
		if err != nil {
			q.keep(ctx, r, err)
		}
	}
}

// keep keeps a result that could not be stored, for another try. One that the server refuses is
// set aside for a while, because it makes the server refuse the results that are sent with it.
func (q *queue) keep(ctx context.Context, r result, err error) {
	switch {
	case errors.Is(err, db.ErrBusy):
		q.load.setAside(clock.SinceBoot(), []result{r}, []int64{r.run.row.ID}, busyDelay)
	case db.IsTransient(err) || ctx.Err() != nil:
		q.load.putBack([]result{r})
	default:
		level := slog.LevelWarn
		if r.retried {
			level = slog.LevelDebug
		}
		q.worker.log.Log(ctx, level, "result not stored, trying on", append(r.run.logAttrs(), "error", err)...)
		r.retried = true
		q.load.setAside(clock.SinceBoot(), []result{r}, []int64{r.run.row.ID}, refusedDelay)
	}
}

func (q *queue) storeOne(ctx context.Context, r result) error {
	settings := q.settings.Load()
	request := db.Exchange{
		Owner: q.worker.id, Queue: q.name, HasLimits: settings.HasLimits, HasKeys: settings.HasKeys, EndedKeys: partitionKeys([]result{r}),
	}
	request.Completions, request.Endings, request.Unrecorded = split([]result{r})
	answer, err := q.worker.schema.Exchange(ctx, q.worker.pool, request)
	if err == nil {
		q.load.keepUnrecorded(clock.SinceBoot(), []result{r}, answer.Unrecorded)
		q.account([]result{r}, answer)
	} else {
		onRow([]result{r}, answer)
	}
	return err
}

// tellFailure tells Config.OnFailure of a run that has failed. final says whether its job has failed for good.
func (w *Worker) tellFailure(r result, final bool) {
	if r.failed() {
		w.failures.add(r.run, r.err, r.ending.Outcome, final)
	}
}

// logEnding logs a run that did not simply succeed. It removes control characters from the error,
// whose text may come from an untrusted source.
func (w *Worker) logEnding(r result, state string) {
	attrs := append(r.run.logAttrs(), "outcome", r.ending.Outcome, "state", state)
	level := slog.LevelDebug
	if outcome := jobq.Outcome(r.ending.Outcome); outcome == jobq.OutcomeFailed || outcome == jobq.OutcomeTimedOut {
		level = slog.LevelWarn
		attrs = append(attrs, "error", printable.FirstLine(r.ending.Error))
	}
	w.log.Log(context.Background(), level, "run ended", attrs...)
}
