package jobq_test

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
)

// invoice is a kind with a default for each option.
type invoice struct {
	Number string `json:"number"`
	later  time.Time
}

func (invoice) Kind() string { return "invoice" }

func (i invoice) EnqueueDefaults() jobq.EnqueueOptions {
	return jobq.EnqueueOptions{
		Queue: "billing", Priority: -3, RunAt: i.later, Delay: time.Hour, MaxAttempts: 7, MaxLost: 20, Timeout: time.Minute, BackoffBase: 2 * time.Second,
		BackoffMax: time.Hour, UniqueKey: i.Number, UniqueFor: time.Hour, OnConflict: jobq.ConflictSkip, PartitionKey: "customer 17", Tags: []string{"money"}, Metadata: json.RawMessage(`{"team": "billing"}`),
		OnParentFailure: jobq.ParentFailureRun,
	}
}

// Every option that the caller leaves zero is the kind's, in each way to enqueue, and
// what the caller gives wins. Method: a default for every field of EnqueueOptions, so
// that one which is forgotten here or in jobq fails the test.
func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	later := time.Now().Add(24 * time.Hour).UTC().Truncate(time.Microsecond)
	defaults := reflect.ValueOf(invoice{"7", later}.EnqueueDefaults())
	for i := range defaults.NumField() {
		name := defaults.Type().Field(i).Name
		// After has no default, and UniqueBy and UniqueWindow are in TestUniqueDefaults: they are for use in place of others.
		require.Equal(t, name == "After" || name == "NoKindDefaults" || name == "UniqueBy" || name == "UniqueWindow", defaults.Field(i).IsZero(), name)
	}
	backoff := func(id int64) (base, longest time.Duration) {
		require.NoError(t, client.Pool().QueryRow(ctx, "select backoff_base, backoff_max from jobq.pending where id = $1", id).Scan(&base, &longest))
		return base, longest
	}
	one, err := client.Enqueue(ctx, invoice{"7", later}, nil)
	require.NoError(t, err)
	many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: invoice{"8", later}}})
	require.NoError(t, err)
	for key, id := range map[string]int64{"7": one.ID, "8": many[0].ID} {
		job, err := client.Get(ctx, id)
		require.NoError(t, err)
		require.Equal(t, []any{"billing", int16(-3), later, 7, 20, time.Minute, key, "customer 17", []string{"money"}},
			[]any{job.Queue, job.Priority, job.RunAt, job.MaxAttempts, job.MaxLost, job.Timeout, job.UniqueKey, job.PartitionKey, job.Tags})
		require.JSONEq(t, `{"team": "billing"}`, string(job.Metadata))
		base, longest := backoff(id)
		require.Equal(t, []time.Duration{2 * time.Second, time.Hour}, []time.Duration{base, longest})
	}
	var kept int
	require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) from jobq.unique_key where kept_until > now()").Scan(&kept))
	require.Equal(t, 2, kept)
	duplicate, err := client.Enqueue(ctx, invoice{"7", later}, nil)
	require.NoError(t, err)
	require.Equal(t, jobq.Enqueued{ID: one.ID, Duplicate: true}, duplicate)

	other, err := client.Enqueue(ctx, invoice{"9", later}, &jobq.EnqueueOptions{
		Queue: "q", Priority: 5, Delay: time.Minute, MaxAttempts: 2, MaxLost: 3, Timeout: time.Hour, BackoffBase: time.Minute, BackoffMax: time.Minute,
		UniqueKey: "own", PartitionKey: "other", Tags: []string{"eu"}, Metadata: json.RawMessage(`1`),
	})
	require.NoError(t, err)
	job, err := client.Get(ctx, other.ID)
	require.NoError(t, err)
	require.Equal(t, []any{"q", int16(5), 2, 3, time.Hour, "own", "other", []string{"eu"}, json.RawMessage(`1`)},
		[]any{job.Queue, job.Priority, job.MaxAttempts, job.MaxLost, job.Timeout, job.UniqueKey, job.PartitionKey, job.Tags, job.Metadata})
	require.True(t, job.RunAt.Before(later), "the caller has given a delay: the kind's time does not count")
	base, longest := backoff(other.ID)
	require.Equal(t, []time.Duration{time.Minute, time.Minute}, []time.Duration{base, longest})
}

// counted counts how often it is asked for its defaults, and how often it is encoded.
type counted struct{ defaulted, encoded *int }

func (counted) Kind() string { return "counted" }

func (c counted) EnqueueDefaults() jobq.EnqueueOptions {
	*c.defaulted++
	return jobq.EnqueueOptions{}
}

func (c counted) MarshalJSON() ([]byte, error) {
	*c.encoded++
	return []byte("{}"), nil
}

// An enqueue asks a job for its defaults, and encodes its args, once: both may be dear.
func TestArgsAreEncodedOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := jobtest.Client(t)
	parent, err := client.Enqueue(ctx, jobtest.Greeting{}, nil)
	require.NoError(t, err)
	for name, options := range map[string]*jobq.EnqueueOptions{
		"plain": nil, "unique": {UniqueKey: "u"}, "kept": {UniqueKey: "k", UniqueFor: time.Hour}, "after another": {After: []int64{parent.ID}},
	} {
		args := counted{new(int), new(int)}
		_, err := client.Enqueue(ctx, args, options)
		require.NoError(t, err, name)
		require.Equal(t, [2]int{1, 1}, [2]int{*args.defaulted, *args.encoded}, name)
		_, err = client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: args}, {Args: args}})
		require.NoError(t, err, name)
		require.Equal(t, [2]int{3, 3}, [2]int{*args.defaulted, *args.encoded}, name)
	}
}

// A caller can set an option back to zero that the kind has a default for, in each way to enqueue, also where a
// middleware sees the jobs first.
func TestNoKindDefaults(t *testing.T) {
	t.Parallel()
	ctx, plain := context.Background(), jobtest.Client(t)
	seen := 0
	wrapped, err := jobq.NewClient(plain.Pool(), &jobq.Config{Middleware: []jobq.EnqueueMiddleware{
		func(ctx context.Context, jobs []jobq.EnqueueParams, next func(context.Context) ([]jobq.Enqueued, error)) ([]jobq.Enqueued, error) {
			for _, job := range jobs {
				require.Zero(t, job.Priority)
				require.Equal(t, "billing", job.Queue)
				seen++
			}
			return next(ctx)
		},
	}})
	require.NoError(t, err)
	for name, client := range map[string]*jobq.Client{"plain": plain, "wrapped": wrapped} {
		options := func(number string) *jobq.EnqueueOptions {
			changed := invoice{Number: name + number}.EnqueueDefaults()
			changed.Priority, changed.Timeout, changed.Delay, changed.Tags, changed.NoKindDefaults = 0, 0, 0, nil, true
			return &changed
		}
		var ids []int64
		one, err := client.Enqueue(ctx, invoice{Number: "1"}, options("1"))
		require.NoError(t, err)
		many, err := client.EnqueueMany(ctx, []jobq.EnqueueParams{{Args: invoice{Number: "2"}, EnqueueOptions: *options("2")}})
		require.NoError(t, err)
		var graph jobq.Graph
		graph.Add("one", invoice{Number: "3"}, options("3"))
		all, err := client.EnqueueGraph(ctx, &graph)
		require.NoError(t, err)
		for _, enqueued := range all {
			ids = append(ids, enqueued.ID)
		}
		require.Len(t, ids, 1)
		for _, id := range append(ids, one.ID, many[0].ID) {
			job, err := client.Get(ctx, id)
			require.NoError(t, err)
			require.Equal(t, []any{jobq.StateAvailable, int16(0), time.Duration(0), "billing", 7}, []any{job.State, job.Priority, job.Timeout, job.Queue, job.MaxAttempts}, name)
			require.Empty(t, job.Tags)
		}
	}
	require.Equal(t, 3, seen)
}
