package jobq

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/storable"
)

// GetByUniqueKey returns the job that holds a unique key of a kind, as [Client.Get] does. That is an unfinished
// job, or one that has ended and keeps the key for a time: see EnqueueOptions.UniqueFor. ErrNotFound when no job
// holds it. The key is as [Job].UniqueKey has it, also where UniqueBy or UniqueWindow has made it.
func (c *Client) GetByUniqueKey(ctx context.Context, kind, key string) (*Job, error) {
	id, err := c.holder(ctx, c.queries, "get", kind, key)
	if err != nil {
		return nil, err
	}
	return c.Get(ctx, id)
}

// GetByUniqueKeyTx is GetByUniqueKey in the caller's transaction.
func (c *Client) GetByUniqueKeyTx(ctx context.Context, tx DBTX, kind, key string) (*Job, error) {
	queries, err := c.in(tx, "get job by its unique key")
	if err != nil {
		return nil, err
	}
	id, err := c.holder(ctx, queries, "get", kind, key)
	if err != nil {
		return nil, err
	}
	return c.get(ctx, queries, id)
}

// CancelByUniqueKey cancels the job that holds a unique key of a kind, as [Client.Cancel] does, and returns its state
// afterwards. ErrNotFound when no job holds the key: the job has ended, or was never added. If the job ends in the
// same moment, the state says how, and a job that takes the key then is not cancelled.
//
// A login needs the role jobq_admin, as for Cancel.
func (c *Client) CancelByUniqueKey(ctx context.Context, kind, key string) (State, error) {
	id, err := c.holder(ctx, c.queries, "cancel", kind, key)
	if err != nil {
		return "", err
	}
	return c.Cancel(ctx, id)
}

// CancelByUniqueKeyTx is CancelByUniqueKey in the caller's transaction: see [Client.CancelTx].
func (c *Client) CancelByUniqueKeyTx(ctx context.Context, tx DBTX, kind, key string) (State, error) {
	queries, err := c.in(tx, "cancel job by its unique key")
	if err != nil {
		return "", err
	}
	id, err := c.holder(ctx, queries, "cancel", kind, key)
	if err != nil {
		return "", err
	}
	return c.CancelTx(ctx, tx, id)
}

// holder is the id of the job that holds a unique key.
func (c *Client) holder(ctx context.Context, queries *db.Queries, verb, kind, key string) (int64, error) {
	operation := verb + " job by its unique key"
	for _, value := range []struct{ name, text string }{{"kind", kind}, {"unique_key", key}} {
		if err := storable.Text(value.name, value.text); err != nil {
			return 0, fmt.Errorf("%s: %w: %w", operation, ErrInvalid, err)
		}
	}
	id, err := queries.JobOfUniqueKey(ctx, kind, key)
	return id, dberror.Wrap(c.schema, fmt.Sprintf("%s job of kind %q with unique key %q", verb, kind, key), err)
}
