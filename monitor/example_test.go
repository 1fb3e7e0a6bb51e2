package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
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

// How many jobs of a queue ended in the last hour, and how.
func ExampleMonitor_Stats() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	enqueued, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.Cancel(ctx, enqueued.ID); err != nil {
		fmt.Println(err)
		return
	}
	stats, err := monitor.New(client).Stats(ctx, time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, queue := range stats {
		fmt.Println(queue.Queue, "completed:", queue.Completed, "cancelled:", queue.Cancelled)
	}
	// Output: default completed: 0 cancelled: 1
}
