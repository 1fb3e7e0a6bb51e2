package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/worker/internal/clock"
	"github.com/jobq-dev/jobq/worker/internal/leases"
)

// Job is a job while it runs: its args, and what the handler can say about
// it. It must not be used after the handler has returned.
type Job[T jobq.Args] struct {
	*Run
	Args T
}

// Run is one run of a job of any kind, from the claim to the result. Its
// methods may be called from several goroutines.
type Run struct {
	worker *Worker
	queue  *queue
	row    db.JobClaimRow
	// partitionKey is the job's partition key, "" for none.
	partitionKey string
	claimedAt    time.Duration // when the claim was sent, by clock.SinceBoot
	hold         leases.Hold[*Run]
	test         *testRecord                // of NewTestJob; nil when a worker runs it
	live         atomic.Pointer[liveOutput] // of a program that runs
	signs        signs                      // that the run goes on
	// began is when the handler was called, which may be long after the claim; zero before
	// that. It is written once, before the keeper knows that the handler runs.
	began time.Time
	ran   time.Duration // how long the handler ran; only the goroutine that runs it uses it, as endsItself
	// endsItself says that the handler ends the job in a transaction of its own.
	endsItself bool
	// argsEncoded says that a codec has decoded the args. Written before the handler is called.
	argsEncoded bool
	// mayHaveEnded says that a call of the handler may have ended the run, such as a step
	// that suspends the job. If it has not, the run ends like any other.
	mayHaveEnded atomic.Bool
	// needsEnd says that a transaction of the handler must end the run: if the handler
	// returns nil and no transaction has stored an end, the attempt has failed.
	needsEnd atomic.Bool

	reports    reports
	completion db.Completion // set by result, which returns a pointer to it
}

// ID is the job's id.
func (r *Run) ID() int64 { return r.row.ID }

// Kind is the job's kind.
func (r *Run) Kind() string { return r.row.Kind }

// PartitionKey is the job's partition key, "" for none.
func (r *Run) PartitionKey() string { return r.partitionKey }

// Queue is the queue that the job was claimed from.
func (r *Run) Queue() string { return r.row.Queue }

// Attempt is the number of this attempt, from 1.
func (r *Run) Attempt() int { return int(r.row.Attempts) + 1 }

// MaxAttempts is how many attempts the job has.
func (r *Run) MaxAttempts() int { return int(r.row.MaxAttempts) }

// LeaseToken grows with every claim of the job. Hand it to outside systems
// that can refuse a smaller one than they have seen.
func (r *Run) LeaseToken() int64 { return r.row.LeaseToken }

// IdempotencyKey is the same in each run of the job, and no other job has it: the id and,
// in microseconds, when the job was enqueued, such as 123-1764350000123456. Hand it to outside
// systems, so that they do twice what two runs ask for only once. The id alone can be that of another job, which a
// failover or a restore has lost.
func (r *Run) IdempotencyKey() string {
	return fmt.Sprintf("%d-%d", r.row.ID, r.row.CreatedAt.Time.UnixMicro())
}

// LastError is the error of the attempt before, if any: of a long one the beginning
// and the end. Its first line is the summary.
func (r *Run) LastError() string {
	if r.row.LastError == nil {
		return ""
	}
	return *r.row.LastError
}

// Crashes is how many runs of the job were lost so far.
func (r *Run) Crashes() int { return int(r.row.Crashes) }

// Lost is how many runs of the job were lost without using an attempt, since it or its queue has a max_lost.
func (r *Run) Lost() int { return int(r.row.Lost) }

// ClearReason says why the run before this one was taken away from its worker,
// such as that its lease expired; "" when it was not. What that run did outside
// of the database may be half done.
func (r *Run) ClearReason() string {
	if r.row.ClearReason == nil {
		return ""
	}
	return *r.row.ClearReason
}

// Cleared says whether the run before this one was taken away: see ClearReason.
func (r *Run) Cleared() bool { return r.row.ClearReason != nil }

// Tags are the job's tags.
func (r *Run) Tags() []string { return r.row.Tags }

// Metadata is the job's metadata; nil for none.
func (r *Run) Metadata() json.RawMessage { return r.row.Metadata }

// CreatedAt is when the job was enqueued, by the database's clock.
func (r *Run) CreatedAt() time.Time { return r.row.CreatedAt.Time }

// Waited is how long the job was ready before this run claimed it, by the
// database's clock. A job whose time was before its enqueue was ready from then on.
func (r *Run) Waited() time.Duration {
	ready := r.row.RunAt.Time
	if r.row.CreatedAt.Time.After(ready) {
		ready = r.row.CreatedAt.Time
	}
	return max(r.row.StartedAt.Time.Sub(ready), 0)
}

// Checkpoint decodes what an earlier run has saved into target, and says
// whether there was anything.
func (r *Run) Checkpoint(target any) (bool, error) {
	checkpoint := r.checkpoint()
	if checkpoint == nil {
		return false, nil
	}
	if err := json.Unmarshal(checkpoint, target); err != nil {
		return false, fmt.Errorf("decode checkpoint of job %d: %w", r.row.ID, coding.Misfit(err, target, r.worker.codec != nil))
	}
	return true, nil
}

// checkpoint is what was saved last, by this run or an earlier one; nil for nothing.
func (r *Run) checkpoint() json.RawMessage {
	if saved := r.reports.savedCheckpoint(); saved != nil {
		return saved
	}
	return r.row.Checkpoint
}

// SaveCheckpoint stores, at once and under the lease, what a later run of the
// job may resume from: any JSON up to 1 MiB. ErrLeaseLost means that it is not
// stored and that the run should end.
func (r *Run) SaveCheckpoint(ctx context.Context, value any) error {
	operation := fmt.Sprintf("checkpoint of job %d", r.row.ID)
	checkpoint, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	r.signs.Add(1)
	if r.test != nil {
		r.reports.setCheckpoint(checkpoint)
		return nil
	}
	stored, err := r.encode(ctx, r.about(jobq.FieldCheckpoint), checkpoint)
	if err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	r.reports.endOnRow()
	settings, sent := r.queue.settings.Load(), clock.SinceBoot()
	rows, err := r.worker.queries.RunCheckpoint(ctx, db.RunCheckpointParams{
		Checkpoint: stored, ID: r.row.ID, Token: r.row.LeaseToken, Owner: r.worker.id, ClaimedAt: r.row.StartedAt,
		ExtendBy: db.IntervalOrNull(settings.ProgressExtends()),
	})
	if err != nil {
		if reason, ok := db.Invalid(err); ok {
			return fmt.Errorf("%s: %w: %s", operation, jobq.ErrInvalid, reason)
		}
		return fmt.Errorf("%s: %w", operation, err)
	}
	if rows == 0 {
		r.worker.keeper.held.Lose(&r.hold)
		return fmt.Errorf("%s: %w", operation, ErrLeaseLost)
	}
	if settings.ProgressExtends() > 0 {
		r.worker.keeper.held.ExtendedBy(&r.hold, settings, sent)
	}
	r.reports.setCheckpoint(checkpoint)
	return nil
}

// SetResult keeps a JSON value of at most 1 MiB with the job when it
// completes.
func (r *Run) SetResult(value any) error {
	result, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("result of job %d: %w", r.row.ID, err)
	}
	r.signs.Add(1)
	if result, err = r.encode(r.worker.handlers.ctx, r.about(jobq.FieldResult), result); err != nil {
		return fmt.Errorf("result of job %d: %w", r.row.ID, err)
	}
	r.reports.keep(func(k *kept) { k.result = result })
	return nil
}

// logAttrs are the attributes that every line about a run has.
func (r *Run) logAttrs() []any {
	return []any{
		"job_id", r.row.ID, "queue", r.row.Queue, "kind", r.row.Kind, "attempt", r.Attempt(), "token", r.row.LeaseToken,
	}
}
