package jobq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Job is a job as stored. Pointers and JSON are nil, and texts empty, where
// they do not apply. Times are the database's.
type Job struct {
	ID           int64           `json:"id"`
	State        State           `json:"state"`
	Queue        string          `json:"queue"`
	Kind         string          `json:"kind"`
	Priority     int16           `json:"priority"`
	Args         json.RawMessage `json:"args,omitempty"` // nil in a list, unless Filter.Values
	Attempts     int             `json:"attempts"`       // runs that ended badly
	MaxAttempts  int             `json:"max_attempts"`
	Crashes      int             `json:"crashes"`            // how many of the last ones, one after the other, were lost with their workers
	Lost         int             `json:"lost,omitempty"`     // runs that were lost without using an attempt, since there is a MaxLost
	MaxLost      int             `json:"max_lost,omitempty"` // how many may be: the job's own, or after the first one its queue's. 0: a lost run uses an attempt
	RunAt        time.Time       `json:"run_at"`
	CreatedAt    time.Time       `json:"created_at"`
	StartedAt    *time.Time      `json:"started_at,omitempty"` // when its handler was called, where that is stored with the end; else when it was claimed. Nil while it waits for a slot of the worker that has claimed it ahead
	FinishedAt   *time.Time      `json:"finished_at,omitempty"`
	Timeout      time.Duration   `json:"timeout_ns,omitempty"`
	UniqueKey    string          `json:"unique_key,omitempty"`
	PartitionKey string          `json:"partition_key,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Checkpoint   json.RawMessage `json:"checkpoint,omitempty"` // nil in a list, unless Filter.Values
	Result       json.RawMessage `json:"result,omitempty"`     // nil in a list, unless Filter.Values
	LastError    string          `json:"last_error,omitempty"`
	ClearReason  string          `json:"clear_reason,omitempty"` // why the last run was taken away, until the next one ends

	LeaseToken        int64      `json:"lease_token"` // the id of its lease, or of its last one; 0 if it was never claimed
	LeaseOwner        string     `json:"lease_owner,omitempty"`
	LeaseExpiresAt    *time.Time `json:"lease_expires_at,omitempty"`
	CancelRequestedAt *time.Time `json:"cancel_requested_at,omitempty"`
	Progress          *Progress  `json:"progress,omitempty"`
}

// Progress is how far the current run says that it is.
type Progress struct {
	Percent float32   `json:"percent"`
	Stage   string    `json:"stage,omitempty"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}

// Get returns a job, or ErrNotFound. A client with a Codec decodes the args, the checkpoint and
// the result. If one of them cannot be decoded, Get returns ErrUnreadable together with the job,
// which has that value as it is stored. Without a Codec, all are as they are stored: see
// EncryptedWith. A value that is too long or too deep to be read, which only the owner of the tables can put
// there, is {"jobq:unreadable": "the reason"}, and comes with ErrUnreadable too.
func (c *Client) Get(ctx context.Context, id int64) (*Job, error) { return c.get(ctx, c.queries, id) }

func (c *Client) get(ctx context.Context, queries *db.Queries, id int64) (*Job, error) {
	row, err := queries.JobGet(ctx, id)
	if err != nil {
		return nil, dberror.Wrap(c.schema, fmt.Sprintf("get job %d", id), dberror.NeedRole(db.RoleViewer, err))
	}
	job := jobFromRow(row)
	err = job.unshown()
	if c.codec != nil {
		err = errors.Join(err, job.Decode(ctx, c.codec))
	}
	if err != nil {
		return job, fmt.Errorf("get job %d: %w", id, err)
	}
	return job, nil
}

// unshown is ErrUnreadable if the database gave a reason in place of a value: see the SQL function json_shown.
func (j *Job) unshown() (problems error) {
	for _, value := range []struct {
		name string
		json json.RawMessage
	}{{"args", j.Args}, {"metadata", j.Metadata}, {"checkpoint", j.Checkpoint}, {"result", j.Result}} {
		var shown struct {
			Problem string `json:"jobq:unreadable"`
		}
		if bytes.HasPrefix(value.json, []byte(`{"jobq:unreadable": `)) && json.Unmarshal(value.json, &shown) == nil {
			problems = errors.Join(problems, fmt.Errorf("%s %w: %s", value.name, ErrUnreadable, shown.Problem))
		}
	}
	return problems
}

// Cancel cancels a job that does not run, and asks the worker of a running one to stop it.
// It returns the state of the job afterwards: StateCancelled; StateRunning until the worker
// has stopped it; or the state in which the job had ended before. The error is ErrNotFound
// if there is no such job.
func (c *Client) Cancel(ctx context.Context, id int64) (State, error) {
	state, err := dberror.Retry(ctx, func() (string, error) { return c.queries.JobCancel(ctx, id) })
	return c.stateAfter(fmt.Sprintf("cancel job %d", id), state, dberror.NeedRole(db.RoleAdmin, err))
}

func jobFromRow(row db.JobGetRow) *Job {
	job := &Job{
		ID: row.ID, State: State(row.State), Queue: row.Queue, Kind: row.Kind, Priority: row.Priority, Args: row.Args,
		Attempts: int(row.Attempts), MaxAttempts: int(row.MaxAttempts), Crashes: int(row.Crashes), Lost: int(row.Lost), MaxLost: int(row.MaxLost),
		RunAt: db.Moment(row.RunAt), CreatedAt: db.Moment(row.CreatedAt), StartedAt: db.UTC(row.StartedAt), FinishedAt: db.UTC(row.FinishedAt),
		Timeout: time.Duration(row.TimeoutMs) * time.Millisecond, UniqueKey: db.Text(row.UniqueKey), PartitionKey: row.PartitionKey, Tags: row.Tags,
		Metadata: row.Metadata, Checkpoint: row.Checkpoint, Result: row.Result, LastError: db.Text(row.LastError), ClearReason: db.Text(row.ClearReason),
		LeaseToken: row.LeaseToken, LeaseOwner: db.Text(row.LeaseOwner), LeaseExpiresAt: db.UTC(row.LeaseExpiresAt),
		CancelRequestedAt: db.UTC(row.CancelRequestedAt),
	}
	if row.ProgressedAt != nil {
		job.Progress = &Progress{
			Stage: db.Text(row.ProgressStage), Message: db.Text(row.ProgressMessage), At: row.ProgressedAt.UTC(),
		}
		if row.ProgressPercent != nil {
			job.Progress.Percent = *row.ProgressPercent
		}
	}
	return job
}
