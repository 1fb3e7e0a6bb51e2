package jobq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
)

// Sync brings an account up to date.
type Sync struct {
	ID   int    `json:"id"`
	Asks string `json:"asks"`
}

// Kind names the handler that runs the job.
func (Sync) Kind() string { return "sync" }

// One job for each account in a window of time (a year, so that the example does not meet the end of one), whoever asks for it and however often; the last one who asks before
// it runs is the one that it has.
func ExampleClient_Enqueue_unique() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	for _, args := range []Sync{{7, "ann"}, {8, "ann"}, {7, "bob"}} {
		enqueued, err := client.Enqueue(ctx, args, &jobq.EnqueueOptions{
			UniqueBy: []string{"id"}, UniqueWindow: 365 * 24 * time.Hour, OnConflict: jobq.ConflictReplace, Delay: time.Minute,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		job, err := client.Get(ctx, enqueued.ID)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(enqueued.ID, enqueued.Duplicate, enqueued.Replaced, string(job.Args))
	}
	// Output:
	// 1 false false {"id": 7, "asks": "ann"}
	// 2 false false {"id": 8, "asks": "ann"}
	// 1 true true {"id": 7, "asks": "bob"}
}
