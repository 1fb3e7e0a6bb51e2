package operator_test

import (
	"context"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// Resize is what the examples enqueue.
type Resize struct {
	Image string `json:"image"`
	Width int    `json:"width"`
}

// Kind names the handler that runs the job.
func (Resize) Kind() string { return "resize" }

// exampleClient is a client on a database that is removed by the function
// returned. A program gets its pool from pgxpool.New instead.
func exampleClient() (*jobq.Client, func()) {
	pool, done := pgtest.ExamplePool()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		panic(err)
	}
	return client, done
}

// Act requeues, cancels and deletes jobs, and Undo takes that back.
func ExampleOperator_Act() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	enqueued, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	ana := operator.New(client, "ana")
	acted, err := ana.Act(ctx, jobq.ActionCancel, operator.Target{ID: enqueued.ID}, operator.Target{ID: 4711})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range acted.Jobs {
		fmt.Println(job.ID, job.After, job.Err())
	}
	undone, err := ana.Undo(ctx, acted.AuditID)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range undone.Jobs {
		fmt.Println(job.ID, job.After, job.Err())
	}
	// Output:
	// 1 cancelled <nil>
	// 4711  no such job
	// 1 available <nil>
}

// No worker claims from a paused queue; what runs goes on.
func ExampleOperator_PauseQueue() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	if _, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, &jobq.EnqueueOptions{Queue: "images"}); err != nil {
		fmt.Println(err)
		return
	}
	ana := operator.New(client, "ana")
	paused, err := ana.PauseQueue(ctx, "images", "the disk is full")
	fmt.Println(paused.Changed, paused.Known, err)
	queues, err := monitor.New(client).Queues(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, queue := range queues {
		fmt.Printf("%s: %d available, paused by %s: %s\n", queue.Name, queue.Available, queue.PausedBy, queue.PauseReason)
	}
	resumed, err := ana.ResumeQueue(ctx, "images")
	fmt.Println(resumed.Changed, err)
	// Output:
	// true true <nil>
	// images: 1 available, paused by ana: the disk is full
	// true <nil>
}
