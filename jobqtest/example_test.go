package jobqtest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/jobqtest"
	"github.com/jobq-dev/jobq/worker"
)

// SendReceipt is a job of the application that the examples test.
type SendReceipt struct {
	OrderID int64 `json:"order_id"`
}

// Kind names the handler.
func (SendReceipt) Kind() string { return "send_receipt" }

// placeOrder is a function of the application: it stores an order and the job to send
// its receipt.
func placeOrder(ctx context.Context, client *jobq.Client, tx pgx.Tx, id int64) error {
	_, err := client.EnqueueTx(ctx, tx, SendReceipt{OrderID: id}, &jobq.EnqueueOptions{Queue: "mail"})
	return err
}

// exampleTest stands for the *testing.T of a test, which an example has not.
type exampleTest struct{ *outcome }

func newExampleTest() *exampleTest { return &exampleTest{new(outcome)} }

func (t *exampleTest) Fatalf(format string, args ...any) {
	fmt.Printf(format+"\n", args...) //nolint:forbidigo // what the example shows
}

// exampleServer stands for JOBQ_TEST_DATABASE_URL.
func exampleServer() *jobqtest.Options {
	return &jobqtest.Options{URL: pgtest.ExampleServer().URL("postgres")}
}

// A function that enqueues in the caller's transaction can be tested without a commit.
func ExampleRecordTx() {
	t, ctx := newExampleTest(), context.Background()
	defer t.end()
	database := jobqtest.New(t, exampleServer()) // in a test: jobqtest.New(t, nil)

	tx, err := database.Pool.Begin(ctx)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	enqueued := jobqtest.RecordTx(t, database.Client, tx)
	if err := placeOrder(ctx, database.Client, tx, 7); err != nil {
		t.Fatalf("%v", err)
	}
	job := jobqtest.RequireOne(enqueued, jobqtest.Equal(SendReceipt{OrderID: 7}))
	fmt.Println(job.Queue, job.Args.OrderID)

	jobqtest.RequireNone[SendReceipt](enqueued, nil) // fails
	// Output:
	// mail 7
	// jobqtest: 1 jobs of kind send_receipt were enqueued, want none
	// 1 jobs were enqueued in all:
	//   1 send_receipt {"order_id": 7} (queue mail, available)
}

// What is due runs until nothing is left. A failed job waits for its retry, which
// RunOptions.Ahead runs at once.
func ExampleRunDue() {
	t, ctx := newExampleTest(), context.Background()
	defer t.end()
	database := jobqtest.New(t, exampleServer())
	if _, err := database.Client.Enqueue(ctx, SendReceipt{OrderID: 7}, nil); err != nil {
		t.Fatalf("%v", err)
	}
	handle := func(w *worker.Worker) error {
		return worker.Handle(w, func(_ context.Context, job *worker.Job[SendReceipt]) error {
			if job.Attempt() == 1 {
				return worker.Retry(time.Minute, errors.New("the mail server is away"))
			}
			return nil
		}, nil)
	}
	counts := jobqtest.RunDue(t, database.Client, handle, nil)
	fmt.Println(counts.Failed, "failed,", counts.Completed, "completed")
	counts = jobqtest.RunDue(t, database.Client, handle, &jobqtest.RunOptions{Ahead: time.Hour})
	fmt.Println(counts.Failed, "failed,", counts.Completed, "completed")
	// Output:
	// 1 failed, 0 completed
	// 0 failed, 1 completed
}
