package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// ImportFile is a kind of job: the rows of a file, from where an earlier run has
// stopped.
type ImportFile struct {
	Rows int `json:"rows"`
}

func (ImportFile) Kind() string { return "import_file" }

func importFile(ctx context.Context, job *worker.Job[ImportFile]) error {
	var next int
	if _, err := job.Checkpoint(&next); err != nil {
		return err
	}
	if job.Args.Rows == 0 {
		return worker.Snooze(time.Minute) // the file is not there yet
	}
	for ; next < job.Args.Rows; next++ {
		job.Progress(float32(100*(next+1)/job.Args.Rows), "rows", "")
	}
	if err := job.SaveCheckpoint(ctx, next); err != nil {
		return err
	}
	return job.SetResult(map[string]int{"rows": next})
}

// A handler can be tested without a database.
func ExampleNewTestJob() {
	test := worker.NewTestJob(ImportFile{Rows: 4}, &worker.TestJobOptions{Attempt: 2, Checkpoint: json.RawMessage("3")})
	fmt.Println(importFile(context.Background(), test.Job))
	var result map[string]int
	fmt.Println(test.Result(&result))
	fmt.Println(result["rows"], test.Progress().Percent)

	var snooze *worker.SnoozeError
	err := importFile(context.Background(), worker.NewTestJob(ImportFile{}, nil).Job)
	fmt.Println(errors.As(err, &snooze), snooze.Delay)
	// Output:
	// <nil>
	// true <nil>
	// 4 100
	// true 1m0s
}

// What a handler finds in a job that NewTestJob has made is what the options say, and
// the defaults are those of a job that was enqueued without options.
func TestNewTestJob(t *testing.T) {
	t.Parallel()
	plain := worker.NewTestJob(task{7}, nil)
	require.Equal(t, []any{int64(1), "task", jobq.DefaultQueue, 1, jobq.DefaultMaxAttempts, int64(1), 7, "", false, 0},
		[]any{
			plain.Job.ID(), plain.Job.Kind(), plain.Job.Queue(), plain.Job.Attempt(), plain.Job.MaxAttempts(), plain.Job.LeaseToken(),
			plain.Job.Args.N, plain.Job.LastError(), plain.Job.Cleared(), plain.Job.Crashes(),
		})
	require.False(t, plain.Job.CreatedAt().IsZero())
	var target any
	for name, told := range map[string]func(any) (bool, error){"checkpoint": plain.Job.Checkpoint, "result": plain.Result} {
		there, err := told(&target)
		require.NoError(t, err)
		require.False(t, there, name)
	}
	require.Equal(t, jobq.Progress{}, plain.Progress())

	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	full := worker.NewTestJob(task{}, &worker.TestJobOptions{
		ID: 2, Queue: "q", PartitionKey: "p", Attempt: 3, MaxAttempts: 4, LeaseToken: 5, Crashes: 6, LastError: "broken", ClearReason: "lost",
		Tags: []string{"eu"}, Metadata: json.RawMessage("1"), CreatedAt: created,
	}).Job
	require.Equal(t, []any{int64(2), "q", "p", 3, 4, int64(5), 6, "broken", "lost", []string{"eu"}, json.RawMessage("1"), created},
		[]any{
			full.ID(), full.Queue(), full.PartitionKey(), full.Attempt(), full.MaxAttempts(), full.LeaseToken(), full.Crashes(), full.LastError(), full.ClearReason(),
			full.Tags(), full.Metadata(), full.CreatedAt(),
		})
	require.Equal(t, "2-1767323045000000", full.IdempotencyKey())
}

// Numbers of a test job beyond what the database can hold are cut to it.
func TestTestJobIsOfTheDatabase(t *testing.T) {
	t.Parallel()
	for number, want := range map[int][3]int{40_000: {32768, 32767, 32767}, -40_000: {1, 0, 0}, 3: {3, 3, 3}} {
		job := worker.NewTestJob(task{}, &worker.TestJobOptions{Attempt: number, MaxAttempts: number, Crashes: number}).Job
		require.Equal(t, want, [3]int{job.Attempt(), job.MaxAttempts(), job.Crashes()}, number)
	}
}

// A test job keeps what its handler reports, as a worker would store it.
func TestTestJobKeepsReports(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	test := worker.NewTestJob(task{}, nil)
	job := test.Job
	job.Progress(30, "first", "begun")
	job.Progress(300, "", "still")
	job.Heartbeat()
	require.Equal(t, jobq.Progress{Percent: 100, Stage: "first", Message: "still"}, test.Progress())
	require.NoError(t, job.SaveCheckpoint(ctx, map[string]int{"at": 1}))
	var at map[string]int
	there, err := job.Checkpoint(&at)
	require.NoError(t, err)
	require.True(t, there)
	require.Equal(t, map[string]int{"at": 1}, at)
	require.Error(t, job.SaveCheckpoint(ctx, func() {}))
	require.NoError(t, job.SetResult("done"))
	var result string
	_, err = test.Result(&result)
	require.NoError(t, err)
	require.Equal(t, "done", result)
	_, err = test.Result(&at)
	require.ErrorContains(t, err, "decode result of job 1")
	require.False(t, test.CompletedTx())
	require.NoError(t, job.CompleteTx(ctx, nil))
	require.True(t, test.CompletedTx())
}
