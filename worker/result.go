package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// result is how a run ended, on its way to the database. With neither a
// completion nor an ending that is stored, and only its lease was not told yet.
type result struct {
	run        *Run
	completion *db.Completion // either this
	ending     *db.Ending     // or that
	retried    bool           // sent before, with an unknown outcome
}

// split sorts results by id, which is the order in which their rows are
// locked, and runs of one job by token; and divides them by what is to be done.
func split(results []result) (completions []db.Completion, endings []db.Ending, untold []db.Slot) {
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
			untold = append(untold, r.run.slot())
		}
	}
	return completions, endings, untold
}

func (r result) isUntold() bool { return r.completion == nil && r.ending == nil }

// runSlot runs handlers, one after the other, until the buffer is closed.
func (q *queue) runSlot() {
	for run := range q.buffer {
		q.execute(run)
	}
}

// execute runs one job and hands in the result.
func (q *queue) execute(run *Run) {
	ctx, cancel := context.WithCancelCause(q.worker.handlers.ctx)
	defer cancel(nil)
	if run.row.TimeoutMs > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, time.Duration(run.row.TimeoutMs)*time.Millisecond, ErrTimedOut)
		defer stop()
	}
	run.began = time.Now()
	if err := q.worker.keeper.start(run, cancel); err != nil {
		q.refuse(run, err)
		return
	}
	err := run.call(ctx)
	run.ran = time.Since(run.began)
	cause := context.Cause(ctx)
	dropped := q.worker.keeper.drop(run)
	if dropped.given {
		return // accounted for when it was given up
	}
	if dropped.completing {
		var settled bool
		if settled, err = q.settleTx(run, err, !dropped.lost, dropped.completed); settled {
			return
		}
	}
	if dropped.lost {
		q.discard() // reported when it was lost
		return
	}
	r := run.result(err, cause)
	q.worker.observe(r.failed(), r.completion != nil)
	q.end(r)
}

// refuse ends a run whose handler was not called, for the reason.
func (q *queue) refuse(run *Run, reason error) {
	if errors.Is(reason, ErrLeaseLost) {
		q.discard() // reported when it was lost
		return
	}
	ending := endingOf(reason, reason)
	ending.Slot, ending.Started = run.slot(), false
	q.end(result{run: run, ending: &ending})
}

// result turns what the handler returned into what is to be stored.
func (r *Run) result(err, cause error) result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if err == nil {
		r.completion = db.Completion{
			Slot: r.slot(), Kind: r.row.Kind, Waited: r.row.StartedAt.Time.Sub(r.row.RunAt.Time), OnRow: r.row.HasKey || r.reported,
			Result: r.resultJSON, Output: r.output, Usage: r.usage, Ran: r.ran,
		}
		return result{run: r, completion: &r.completion}
	}
	ending := endingOf(err, cause)
	ending.Slot, ending.Output, ending.Usage, ending.Ran = r.slot(), r.output, r.usage, r.ran
	return result{run: r, ending: &ending}
}

// plainMax is how long after the claim the lease can still tell when a run has
// ended: a smallint of milliseconds, less the time that storing it may take.
const plainMax = 30 * time.Second

// slot is the run's place in its lease.
func (r *Run) slot() db.Slot {
	return db.Slot{ID: r.row.ID, Token: r.row.LeaseToken, Slot: r.row.Slot, ClaimedAt: r.row.StartedAt.Time}
}

// failed says whether the run counts as an attempt.
func (r result) failed() bool {
	return r.ending != nil && (r.ending.Outcome == string(jobq.OutcomeFailed) || r.ending.Outcome == string(jobq.OutcomeTimedOut))
}

// took is how long the run took, as it is handed in.
func (r result) took() time.Duration {
	switch {
	case r.completion != nil:
		return r.completion.Ran
	case r.ending != nil:
		return r.ending.Ran
	}
	return 0 // only the lease was not told
}

// released is the result of a run that was cut short for the worker's sake.
func (r *Run) released(started bool) result {
	ending := db.Ending{Slot: r.slot(), Outcome: string(jobq.OutcomeReleased), Started: started}
	if started {
		ending.Ran = time.Since(r.began)
	}
	return result{run: r, ending: &ending}
}

// account compares what was sent, as split has sorted it, with what the database
// has accepted. Of several runs of one job only the last can be meant: the others
// had lost their leases when it was claimed again.
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
		case r.isUntold(): // accounted for when it was stored
		case ok && (r.completion != nil || state == string(jobq.StateCompleted)): // its own transaction may have completed it after all
			q.worker.counts.completed.Add(1)
			q.worker.digests.ended(r, state, false)
		case ok:
			q.worker.counts.ended(r.ending.Outcome)
			q.worker.digests.ended(r, state, countsAsAttempt(r.ending.Outcome))
			q.worker.logEnding(r, state)
		case r.retried:
			// The try before may have been the one that stored it.
			q.worker.log.Warn("result refused, or stored before the connection broke", r.run.logAttrs()...)
		default:
			q.worker.counts.lost.Add(1)
			q.worker.log.Warn("result refused, lease lost", r.run.logAttrs()...)
		}
	}
}

// accountStored is account for a round trip of which a part has failed. It
// returns the results that the other part does not speak of.
func (q *queue) accountStored(results []result, answer db.Exchanged) (rest []result) {
	if len(answer.Completed) == 0 && len(answer.Ended) == 0 {
		return results
	}
	told := make(map[int64]bool, len(answer.Completed)+len(answer.Ended))
	for _, id := range answer.Completed {
		told[id] = true
	}
	for _, ended := range answer.Ended {
		told[ended.ID] = true
	}
	var stored []result
	for _, r := range results {
		if told[r.run.row.ID] {
			stored = append(stored, r)
		} else {
			rest = append(rest, r)
		}
	}
	q.tellLater(stored, answer.Untold)
	q.account(stored, answer)
	return rest
}

// storeApart stores results one by one, after the database has refused them
// together for a reason that may not pass. Where the value is at fault, such as a
// result with a NUL in it, the run becomes a failed attempt. All else is no fault
// of the run: its result is kept for another try, and the others are stored.
func (q *queue) storeApart(ctx context.Context, results []result) {
	for _, r := range results {
		err := q.storeOne(ctx, r)
		if db.IsBadValue(err) {
			r = r.unstorable(err)
			if err = q.storeOne(ctx, r); db.IsBadValue(err) { // its reason, too
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

// unstorable is the result of a run whose own result the database refuses.
func (r result) unstorable(err error) result {
	reason := err.Error()
	if invalid, ok := db.Invalid(err); ok {
		reason = invalid
	}
	return result{run: r.run, ending: &db.Ending{
		Slot: r.run.slot(), Outcome: string(jobq.OutcomeFailed),
		Error: excerpt.Error("result could not be stored: " + reason), Started: true, Ran: r.took(),
	}}
}

// keep keeps a result that could not be stored now, for another try: a refused
// one apart for a while, since what is sent with it is refused too.
func (q *queue) keep(ctx context.Context, r result, err error) {
	switch {
	case errors.Is(err, db.ErrBusy):
		q.setAside([]result{r}, []int64{r.run.row.ID}, busyDelay)
	case db.IsTransient(err) || ctx.Err() != nil:
		q.putBack([]result{r})
	default:
		level := slog.LevelWarn
		if r.retried {
			level = slog.LevelDebug
		}
		q.worker.log.Log(ctx, level, "result not stored, trying on", append(r.run.logAttrs(), "error", err)...)
		r.retried = true
		q.setAside([]result{r}, []int64{r.run.row.ID}, refusedDelay)
	}
}

func (q *queue) storeOne(ctx context.Context, r result) error {
	request := db.Exchange{Owner: q.worker.id}
	request.Completions, request.Endings, request.Untold = split([]result{r})
	answer, err := q.worker.schema.Exchange(ctx, q.worker.pool, request)
	if err == nil {
		q.tellLater([]result{r}, answer.Untold)
		q.account([]result{r}, answer)
	} else {
		onRow([]result{r}, answer)
	}
	return err
}
