package jobq

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/storable"
)

// EnqueueManyMax is the most jobs that one call of EnqueueMany takes.
const EnqueueManyMax = 100_000

// Args is what a job works on: anything that encodes to JSON and names its
// kind. Kind must not depend on the fields: workers call it on a zero value.
type Args interface {
	// Kind names the handler that runs the job: 1 to 128 characters.
	Kind() string
}

// RawArgs are args that are JSON already, for callers without a type of
// their own, such as a command line.
type RawArgs struct {
	Name string          // the kind
	JSON json.RawMessage // empty means {}
}

// Kind returns the name.
func (r RawArgs) Kind() string { return r.Name }

// MarshalJSON returns the JSON as it is.
func (r RawArgs) MarshalJSON() ([]byte, error) {
	if len(r.JSON) == 0 {
		return []byte("{}"), nil
	}
	return r.JSON, nil
}

// EnqueueOptions says how a job is to be run. The zero value, and nil, mean
// the defaults: those of the kind, if it has any (EnqueueDefaults, and SetKind of package
// operator), or those below.
type EnqueueOptions struct {
	// Queue is the queue's name, 1 to 128 characters. Default "default".
	Queue string
	// Priority orders jobs of a queue: lower runs first. Default 0.
	Priority int16
	// RunAt is the earliest time of the first run, by the database's clock, in
	// the years 1 to 9999. Default: now.
	RunAt time.Time
	// Delay is how long the job waits when RunAt is zero, counted from the enqueue by
	// the database's clock. Default 0.
	Delay time.Duration
	// MaxAttempts is how many runs may end badly before the job is failed for
	// good: 1 to 32767. Default 25 (DefaultMaxAttempts), which with the default
	// backoff is about four days, and 8.5 at most.
	MaxAttempts int
	// MaxLost is how many runs may be lost, because their worker or its host is gone, without using an
	// attempt: 1 to 32767. One more fails the job for good. Default 0: as the queue has it (its setting
	// max_lost), or else each lost run uses an attempt.
	MaxLost int
	// Timeout ends a run that takes longer; it counts as a failed attempt.
	// Default 0: none.
	Timeout time.Duration
	// BackoffBase is the longest wait after the first failed attempt; it
	// doubles with each further one up to BackoffMax, and the wait is a random
	// part of it (full jitter). Defaults: 1 second (DefaultBackoffBase), 1 day
	// (DefaultBackoffMax).
	BackoffBase, BackoffMax time.Duration
	// UniqueKey allows one unfinished job of the kind with this key: 1 to 255
	// characters. Default "": no such limit, unless UniqueBy makes a key.
	UniqueKey string
	// UniqueBy makes the unique key of these fields of the args, 1 to 32, by their names in JSON, or
	// of all of the args: AllArgs. The args must have one of the fields at least, and a Client
	// with a Codec refuses UniqueBy. Default nil: the key is UniqueKey.
	UniqueBy []string
	// UniqueFor is how long the key is held from the enqueue on, by the database's clock, even if the job
	// has ended before: at most 10 years. Default 0: while the job is unfinished, as always.
	UniqueFor time.Duration
	// UniqueWindow allows one job with the key in each window of this length, even if the job
	// has ended, such as one each hour: 1 second to 10 years. Windows follow one another
	// from 2001-01-01 UTC on, which was a Monday. It is not for use with UniqueFor. Default 0: no windows.
	UniqueWindow time.Duration
	// OnConflict is what is done when another job holds the unique key. Default
	// ConflictSkip: nothing is added.
	OnConflict Conflict
	// PartitionKey is what the job belongs to, such as a customer: 1 to 255 characters.
	// The keys of a queue take turns, and may have a limit each on how many of their
	// jobs run at once: see docs/partition-keys.md. Default "": none.
	PartitionKey string
	// Tags are for finding jobs: at most 32, and 8 KiB in all. Default: none.
	Tags []string
	// Metadata is kept with the job for the caller: JSON, at most 64 KiB. Default nil:
	// none.
	Metadata json.RawMessage
	// After are the ids of jobs that the job waits for, its parents: it is StateWaiting
	// until they are over. A janitor then puts it into the line; RunAt counts as well.
	// ErrNotFound when there is no such job. See Graph for jobs that wait for one
	// another. Default: none.
	After []int64
	// OnParentFailure says what becomes of the job when a parent fails, is cancelled,
	// or is deleted before it is over. Default ParentFailureCancel.
	OnParentFailure ParentFailure
	// NoKindDefaults leaves out what the args' method EnqueueDefaults returns: see [EnqueueDefaults]. Settings
	// of the kind in the database hold all the same. Default false.
	NoKindDefaults bool
}

// ParentFailure is what becomes of a job when another one that it waits for has failed or
// was cancelled.
type ParentFailure string

// What can become of it.
const (
	ParentFailureCancel ParentFailure = "cancel" // it is cancelled; the default
	ParentFailureRun    ParentFailure = "run"    // it runs when all parents are over, however they have ended
	ParentFailureWait   ParentFailure = "wait"   // it waits until the parent has been requeued and completes
)

// EnqueueDefaults are args whose kind has defaults of its own. An option that the caller of
// an enqueue leaves zero has the value of the method EnqueueDefaults; if that is zero as
// well, the kind's setting in the database (SetKind of package operator), or else the default
// of EnqueueOptions. To set one of the method's back to zero, change what it returns:
//
//	options := args.EnqueueDefaults()
//	options.Timeout, options.NoKindDefaults = 0, true // no timeout, and all else as the kind has it
//
// An option that is zero after that has the kind's setting in the database, if there is one.
//
// RunAt and Delay go together: if the caller gives one of them, both defaults of the kind
// are ignored. After has no such default.
//
// Only enqueues from Go use them: not schedules, nor SQL, nor the command jobq enqueue.
//
// The method belongs to the type, not to the client, so that every program that
// enqueues the kind has the same defaults. They may depend on the args: a unique key
// usually does.
type EnqueueDefaults interface {
	Args
	EnqueueDefaults() EnqueueOptions
}

// EnqueueParams is one job of EnqueueMany.
type EnqueueParams struct {
	// Args are what the job works on, at most 1 MiB of JSON. Required: they have no
	// default.
	Args Args
	// EnqueueOptions say how it is to be run. The zero value means the defaults.
	EnqueueOptions
}

// Enqueued tells what became of an enqueue.
type Enqueued struct {
	ID int64 `json:"id"`
	// Duplicate means that nothing was added: a job with the same unique key was
	// there, and ID is its id.
	Duplicate bool `json:"duplicate"`
	// Replaced means that the job with the key has the new args, priority and start now:
	// see ConflictReplace. With that option, a Duplicate that is not Replaced had begun
	// already.
	Replaced bool `json:"replaced,omitempty"`
}

// Enqueue adds a job and wakes a worker. Nil options mean the defaults. The error is
// ErrInvalid for a value that was refused, and says which; ErrDuplicate with
// ConflictFail; and ErrNotFound when a job of After does not exist.
func (c *Client) Enqueue(ctx context.Context, args Args, options *EnqueueOptions) (Enqueued, error) {
	if c.middleware != nil {
		return c.oneWithin(ctx, args, options, c.enqueueOneNow)
	}
	return c.enqueueOneNow(ctx, args, options)
}

func (c *Client) enqueueOneNow(ctx context.Context, args Args, options *EnqueueOptions) (Enqueued, error) {
	return dberror.Retry(ctx, func() (Enqueued, error) { return c.enqueueOne(ctx, c.queries, args, options) })
}

// EnqueueTx adds a job in the caller's transaction: it exists when the
// transaction commits, and never when it rolls back. For what can be a transaction, see DBTX.
func (c *Client) EnqueueTx(ctx context.Context, tx DBTX, args Args, options *EnqueueOptions) (Enqueued, error) {
	queries, err := c.in(tx, "enqueue")
	if err != nil {
		return Enqueued{}, err
	}
	if c.middleware != nil {
		return c.oneWithin(ctx, args, options, func(ctx context.Context, args Args, options *EnqueueOptions) (Enqueued, error) {
			return c.enqueueOne(ctx, queries, args, options)
		})
	}
	return c.enqueueOne(ctx, queries, args, options)
}

// EnqueueMany adds jobs in one statement, all of them or none, and answers in
// their order. At most EnqueueManyMax.
func (c *Client) EnqueueMany(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) {
	if c.middleware != nil {
		return c.manyWithin(ctx, jobs, c.enqueueManyNow)
	}
	return c.enqueueManyNow(ctx, jobs)
}

func (c *Client) enqueueManyNow(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) {
	return dberror.Retry(ctx, func() ([]Enqueued, error) { return c.enqueueMany(ctx, c.queries, jobs) })
}

// EnqueueManyTx is EnqueueMany in the caller's transaction.
func (c *Client) EnqueueManyTx(ctx context.Context, tx DBTX, jobs []EnqueueParams) ([]Enqueued, error) {
	queries, err := c.in(tx, "enqueue")
	if err != nil {
		return nil, err
	}
	if c.middleware != nil {
		return c.manyWithin(ctx, jobs, func(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) {
			return c.enqueueMany(ctx, queries, jobs)
		})
	}
	return c.enqueueMany(ctx, queries, jobs)
}

func (c *Client) enqueueOne(ctx context.Context, queries *db.Queries, args Args, options *EnqueueOptions) (Enqueued, error) {
	job := EnqueueParams{Args: args}
	if options != nil {
		job.EnqueueOptions = *options
	}
	job = withDefaults(job)
	params, err := enqueueParams(&job)
	if err != nil {
		return Enqueued{}, fmt.Errorf("enqueue: %w: %w", ErrInvalid, err)
	}
	if job.UniqueKey != "" || job.hasUniqueness() || len(job.After) > 0 { // only JobEnqueueMany answers with the holder of a key, and takes After
		columns := columnsFor(1)
		if err := c.setColumns(&columns, 0, &job, &params); err != nil {
			return Enqueued{}, fmt.Errorf("enqueue: %w: %w", ErrInvalid, err)
		}
		if columns.Args[0], err = c.encodedArgs(ctx, columns.Kinds[0], columns.Args[0]); err != nil {
			return Enqueued{}, fmt.Errorf("enqueue: %w", err)
		}
		rows, err := queries.JobEnqueueMany(ctx, columns)
		if err != nil {
			return Enqueued{}, c.refused(withoutPlace(err))
		}
		return Enqueued(rows[0]), nil
	}
	if params.Args, err = c.encodedArgs(ctx, params.Kind, params.Args); err != nil {
		return Enqueued{}, fmt.Errorf("enqueue: %w", err)
	}
	id, err := queries.JobEnqueue(ctx, params)
	if err != nil {
		return Enqueued{}, c.refused(err)
	}
	return Enqueued{ID: id}, nil
}

// withoutPlace removes the index of the job from a refusal, because the caller gave only one job.
func withoutPlace(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		pgErr.Message = strings.TrimPrefix(pgErr.Message, "jobs[0]: ")
	}
	return err
}

func (c *Client) enqueueMany(ctx context.Context, queries *db.Queries, jobs []EnqueueParams) ([]Enqueued, error) {
	if len(jobs) == 0 {
		return nil, nil
	}
	if len(jobs) > EnqueueManyMax {
		return nil, fmt.Errorf("enqueue: %w: jobs must be at most %d in one call, not %d", ErrInvalid, EnqueueManyMax, len(jobs))
	}
	columns, err := c.enqueueColumns(jobs)
	if err != nil {
		return nil, fmt.Errorf("enqueue: %w: %w", ErrInvalid, err)
	}
	if err := c.encodeArgs(ctx, columns.Kinds, columns.Args); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	rows, err := queries.JobEnqueueMany(ctx, columns)
	if err != nil {
		return nil, c.refused(err)
	}
	enqueued := make([]Enqueued, len(rows))
	for i, row := range rows {
		enqueued[i] = Enqueued(row)
	}
	return enqueued, nil
}

// enqueueColumns turns jobs into one array per column, which is how many rows
// travel in one statement. An error names the job by its index in jobs.
func (c *Client) enqueueColumns(jobs []EnqueueParams) (db.JobEnqueueManyParams, error) {
	columns := columnsFor(len(jobs))
	for i := range jobs {
		job := withDefaults(jobs[i])
		params, err := enqueueParams(&job)
		if err == nil {
			err = c.setColumns(&columns, i, &job, &params)
		}
		if err != nil {
			return columns, fmt.Errorf("jobs[%d]: %w", i, err)
		}
	}
	return columns, nil
}

// columnsFor returns columns for count jobs. Only the columns that every job has are arrays from
// the start: a column that no job sets stays nil, because an array of defaults would cost the
// server as much as any other.
func columnsFor(count int) db.JobEnqueueManyParams {
	return db.JobEnqueueManyParams{Kinds: make([]string, count), Args: make([]json.RawMessage, count)}
}

// setColumns puts job i into the columns: params is what enqueueParams makes of it.
func (c *Client) setColumns(columns *db.JobEnqueueManyParams, i int, job *EnqueueParams, params *db.JobEnqueueParams) error {
	count := len(columns.Kinds)
	columns.Kinds[i], columns.Args[i] = params.Kind, params.Args
	setElement(&columns.Queues, count, i, params.Queue, params.Queue != "")
	setElement(&columns.Priorities, count, i, params.Priority, params.Priority != 0)
	setElement(&columns.MaxAttempts, count, i, params.MaxAttempts, params.MaxAttempts != 0)
	setElement(&columns.MaxLosts, count, i, params.MaxLost, params.MaxLost != 0)
	setElement(&columns.Delays, count, i, params.Delay, params.Delay.Valid)
	setElement(&columns.Timeouts, count, i, params.Timeout, params.Timeout.Valid)
	setElement(&columns.BackoffBases, count, i, params.BackoffBase, params.BackoffBase.Valid)
	setElement(&columns.BackoffMaxes, count, i, params.BackoffMax, params.BackoffMax.Valid)
	setElement(&columns.UniqueKeys, count, i, job.UniqueKey, job.UniqueKey != "")
	setElement(&columns.PartitionKeys, count, i, params.PartitionKey, params.PartitionKey != "")
	setElement(&columns.Metadata, count, i, params.Metadata, params.Metadata != nil)
	setElement(&columns.AfterFailures, count, i, string(job.OnParentFailure), job.OnParentFailure != "")
	if job.hasUniqueness() {
		if err := c.uniqueWithCodec(&job.EnqueueOptions); err != nil {
			return err
		}
		uniqueness, err := job.uniqueness()
		if err != nil {
			return fmt.Errorf("uniqueness: %w", err)
		}
		setElement(&columns.Uniques, count, i, uniqueness, true)
	}
	if params.RunAt != nil {
		setElement(&columns.RunAts, count, i, db.Timestamp(*params.RunAt), true)
	}
	for _, parent := range job.After {
		columns.AfterJobs = append(columns.AfterJobs, int32(i+1)) // #nosec G115 -- at most EnqueueManyMax
		columns.AfterParents = append(columns.AfterParents, parent)
	}
	if params.Tags != nil {
		tags, err := json.Marshal(params.Tags)
		if err != nil {
			return fmt.Errorf("tags: %w", err)
		}
		setElement(&columns.Tags, count, i, tags, true)
	}
	return nil
}

// setElement sets element i of a column of count elements, unless isSet is false. It makes the
// column when it sets the first element.
func setElement[T any](column *[]T, count, i int, value T, isSet bool) {
	if !isSet {
		return
	}
	if *column == nil {
		*column = make([]T, count)
	}
	(*column)[i] = value
}

// withDefaults is the job with the defaults of its kind.
func withDefaults(job EnqueueParams) EnqueueParams {
	args, ok := job.Args.(EnqueueDefaults)
	if !ok || job.NoKindDefaults || db.IsNil(args) {
		return job
	}
	defaults := args.EnqueueDefaults()
	if job.RunAt.IsZero() && job.Delay == 0 {
		job.RunAt, job.Delay = defaults.RunAt, defaults.Delay
	}
	job.Queue = cmp.Or(job.Queue, defaults.Queue)
	job.Priority = cmp.Or(job.Priority, defaults.Priority)
	job.MaxAttempts = cmp.Or(job.MaxAttempts, defaults.MaxAttempts)
	job.MaxLost = cmp.Or(job.MaxLost, defaults.MaxLost)
	job.Timeout = cmp.Or(job.Timeout, defaults.Timeout)
	job.BackoffBase = cmp.Or(job.BackoffBase, defaults.BackoffBase)
	job.BackoffMax = cmp.Or(job.BackoffMax, defaults.BackoffMax)
	job.uniqueDefaults(&defaults)
	job.PartitionKey = cmp.Or(job.PartitionKey, defaults.PartitionKey)
	if job.Tags == nil {
		job.Tags = defaults.Tags
	}
	if job.Metadata == nil {
		job.Metadata = defaults.Metadata
	}
	job.OnParentFailure = cmp.Or(job.OnParentFailure, defaults.OnParentFailure)
	return job
}

// enqueueParams is a job as one row, without its unique key. Zero values mean
// the column's default.
func enqueueParams(job *EnqueueParams) (db.JobEnqueueParams, error) {
	if db.IsNil(job.Args) {
		return db.JobEnqueueParams{}, errors.New("args are nil")
	}
	args, err := json.Marshal(job.Args)
	if err != nil {
		return db.JobEnqueueParams{}, fmt.Errorf("args: %w", err)
	}
	for _, value := range []struct{ name, text string }{
		{"kind", job.Args.Kind()}, {"unique_key", job.UniqueKey}, {"queue", job.Queue}, {"partition_key", job.PartitionKey},
	} {
		if err := storable.Text(value.name, value.text); err != nil {
			return db.JobEnqueueParams{}, err
		}
	}
	if err := storable.Encoded("args", args); err != nil { // Marshal has made sure that it is JSON
		return db.JobEnqueueParams{}, err
	}
	if err := checkOptions(&job.EnqueueOptions); err != nil {
		return db.JobEnqueueParams{}, err
	}
	params := db.JobEnqueueParams{
		Kind: job.Args.Kind(), Args: args, Queue: job.Queue, PartitionKey: job.PartitionKey, Metadata: job.Metadata,
		Priority: int32(job.Priority), MaxAttempts: int32(job.MaxAttempts), MaxLost: int32(job.MaxLost), // #nosec G115 -- checked above
		Delay: db.IntervalOrNull(job.Delay), Timeout: db.IntervalOrNull(job.Timeout),
		BackoffBase: db.IntervalOrNull(job.BackoffBase), BackoffMax: db.IntervalOrNull(job.BackoffMax),
	}
	if !job.RunAt.IsZero() {
		params.RunAt = &job.RunAt
	}
	if len(job.Tags) > 0 {
		params.Tags = job.Tags
	}
	return params, nil
}

// checkOptions returns an error for values that the database cannot check.
func checkOptions(options *EnqueueOptions) error {
	if slices.ContainsFunc(options.After, func(id int64) bool { return id < 1 }) {
		return errors.New("after must be ids of jobs, above 0")
	}
	return cmp.Or(
		storable.Text("on_parent_failure", string(options.OnParentFailure)), storable.Count("max_attempts", options.MaxAttempts),
		storable.Count("max_lost", options.MaxLost), storable.RunAt(options.RunAt),
		storable.Tags(options.Tags), storable.JSON("metadata", options.Metadata), options.checkUniqueness(),
	)
}
