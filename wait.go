package jobq

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/await"
	"github.com/jobq-dev/jobq/internal/coding"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Ended is how a job has ended.
type Ended struct {
	ID    int64 `json:"id"`
	State State `json:"state"` // StateCompleted, StateFailed or StateCancelled; see also AwaitMany
	// Result is what the handler of a completed job gave with SetResult, at most 1 MiB
	// of JSON; nil for none. A client without a Codec has it as it is stored: see EncryptedWith.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is the error of the last attempt of a job that has failed, and of one that was
	// cancelled the reason, as far as there is one; "" otherwise. At most 1000 characters.
	Error      string    `json:"error,omitempty"`
	FinishedAt time.Time `json:"finished_at"` // by the database's clock

	isEncoded bool // the result was stored encoded: errors must not quote it
}

// NotCompletedError is the error of a job that was to complete, and has failed or was
// cancelled.
type NotCompletedError struct {
	Ended Ended
}

// Error says how the job has ended.
func (e *NotCompletedError) Error() string {
	text := fmt.Sprintf("job %d is %s", e.Ended.ID, e.Ended.State)
	if e.Ended.Error != "" {
		text += ": " + e.Ended.Error
	}
	return text
}

// Err is nil for a job that has completed, and a *NotCompletedError for one that has failed or
// was cancelled. It is ErrNotFound for a job that AwaitMany has not found.
func (e Ended) Err() error {
	if e.State == StateCompleted {
		return nil
	}
	if e.State == "" {
		return fmt.Errorf("job %d: %w", e.ID, dberror.NotFound(e.Error))
	}
	return &NotCompletedError{e}
}

// Decode stores the result of a completed job in target, which stays as it is where the
// job has no result. The error is that of Err, or ErrUnreadable for one that is still
// encrypted, or says what is wrong with the JSON.
func (e Ended) Decode(target any) error {
	if err := e.Err(); err != nil {
		return err
	}
	if e.Result == nil {
		return nil
	}
	if key, encrypted := EncryptedWith(e.Result); encrypted { // the target would stay empty, without an error
		return fmt.Errorf("decode result of job %d: %w: it is encrypted with key %q", e.ID, ErrUnreadable, key)
	}
	if err := json.Unmarshal(e.Result, target); err != nil {
		return fmt.Errorf("decode result of job %d: %w", e.ID, coding.Misfit(err, target, e.isEncoded))
	}
	return nil
}

// Wait waits until the job has completed, has failed for good, or is cancelled, and
// returns which. A job that had ended before is answered at once. While a job waits for
// its next attempt, it has not ended; if it has ended and is requeued before Wait has
// seen that, Wait goes on.
//
// The error is ErrNotFound when there is no such job, also when it is deleted meanwhile,
// by a person or because its retention has ended; then the text says which of these can
// be. It is the context's error when that ends first, which ErrTimeout stands for as well
// where that was a deadline. While the database is away, Wait waits for it. ErrUnreadable
// comes beside how the job has ended, with its result as it is stored.
//
// For all its waiting callers together, a client listens on one connection and sends one
// statement at a time on its pool: one for all jobs that have ended meanwhile; otherwise at
// most one a second that looks at the jobs, and one every ten seconds that announces that it
// still waits. If all jobs had ended before, it does not listen. Jobs are looked at each
// second behind a pooler, which delivers no notifications, and for a role or on a standby
// that cannot announce that it waits. The role needs the rights of a viewer.
//
// Do not wait within the transaction that has enqueued the job: no worker can see the job
// before the commit, and Wait returns ErrNotFound. Do not wait while holding the last
// connection of the pool. A handler that waits for a job of its own queue occupies a slot
// that the job may need.
func (c *Client) Wait(ctx context.Context, id int64) (Ended, error) {
	return c.wait(ctx, id, false)
}

// EnqueueAndWait enqueues a job as Enqueue does, and waits for it as Wait does. With a
// unique key that another job holds it waits for that one. After an error, ID is that of
// the job if it was enqueued: it will run all the same.
func (c *Client) EnqueueAndWait(ctx context.Context, args Args, options *EnqueueOptions) (Ended, error) {
	release, err := c.waiters.Hold()
	if err != nil {
		return Ended{}, fmt.Errorf("wait: %w", err)
	}
	defer release()
	enqueued, err := c.Enqueue(ctx, args, options)
	if err != nil {
		return Ended{}, err
	}
	return c.wait(ctx, enqueued.ID, !enqueued.Duplicate)
}

// WaitResult waits for the job as [Client.Wait] does, and returns its result: the zero
// value of R for a job that has none. The error is a *NotCompletedError when the job has
// failed or was cancelled.
func WaitResult[R any](ctx context.Context, client *Client, id int64) (R, error) {
	var result R
	if client == nil {
		return result, fmt.Errorf("wait for job %d: %w: the client is nil", id, ErrInvalid)
	}
	ended, err := client.Wait(ctx, id)
	if err == nil {
		err = ended.Decode(&result)
	}
	return result, err
}

func (c *Client) wait(ctx context.Context, id int64, isNew bool) (Ended, error) {
	operation := fmt.Sprintf("wait for job %d", id)
	row, err := c.waiters.Wait(ctx, id, isNew)
	switch {
	case err != nil:
		return Ended{ID: id}, dberror.Wrap(c.schema, operation, dberror.NeedRole(db.RoleViewer, err))
	case row.State == await.StateUnknown:
		return Ended{ID: id}, fmt.Errorf("%s: %w", operation, dberror.NotFound("there has never been such a job here"))
	case row.State == await.StateGone:
		return Ended{ID: id}, fmt.Errorf("%s: %w", operation,
			dberror.NotFound("the job is gone: it was deleted, or its retention has ended, or the transaction that enqueued it is not committed"))
	}
	ended := Ended{ID: id, State: State(row.State), Result: row.Result, Error: row.Error, FinishedAt: db.Moment(row.EndedAt)}
	result, err := coding.Decode(ctx, c.codec, coding.ValueOf(FieldResult, row.Kind, id), row.Result)
	switch {
	case err == nil:
		ended.Result = result
	case c.codec != nil: // else the result is as stored, as in what Get returns
		return ended, fmt.Errorf("%s: %w", operation, err)
	}
	return ended, nil
}
