package jobq

import (
	"context"
	"fmt"
)

// Cancel ends a job that waits, and asks the worker of a running one to stop.
// It returns the state afterwards: Cancelled; Running, while the worker has
// yet to obey; or the state in which the job had ended before. ErrNotFound if
// there is no such job.
func (c *Client) Cancel(ctx context.Context, id int64) (State, error) {
	state, err := retried(ctx, func() (string, error) { return c.queries.JobCancel(ctx, id) })
	return c.stateAfter(fmt.Sprintf("cancel job %d", id), state, err)
}

// Requeue makes a finished or scheduled job available now, with at least one
// attempt left. ErrConflict if it is running, ErrDuplicate if another
// unfinished job has taken its unique key, ErrNotFound if there is no such job.
func (c *Client) Requeue(ctx context.Context, id int64) error {
	state, err := retried(ctx, func() (string, error) { return c.queries.JobRequeue(ctx, id) })
	_, err = c.stateAfter(fmt.Sprintf("requeue job %d", id), state, err)
	return err
}

// Delete removes a job that does not run, with the record of its attempts.
// ErrConflict if it is running, ErrNotFound if there is no such job.
func (c *Client) Delete(ctx context.Context, id int64) error {
	operation := fmt.Sprintf("delete job %d", id)
	deleted, err := retried(ctx, func() (bool, error) { return c.queries.JobDelete(ctx, id) })
	if err != nil {
		return c.clientError(operation, err)
	}
	if !deleted {
		return fmt.Errorf("%s: %w", operation, ErrNotFound)
	}
	return nil
}

func (c *Client) stateAfter(operation string, state string, err error) (State, error) {
	if err != nil {
		return "", c.clientError(operation, err)
	}
	if state == "" {
		return "", fmt.Errorf("%s: %w", operation, ErrNotFound)
	}
	return State(state), nil
}
