package jobq_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// Resize is what the examples enqueue: the args of a kind of job are a type
// that names it.
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

func ExampleNewClient() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://127.0.0.1:1/app")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, &jobq.Config{Schema: "work_queue"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Schema())
	// Output: work_queue
}

func ExampleClient_Check() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	fmt.Println(client.Check(ctx))

	elsewhere, err := jobq.NewClient(client.Pool(), &jobq.Config{Schema: "elsewhere"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = elsewhere.Check(ctx)
	fmt.Println(errors.Is(err, jobq.ErrNotMigrated), err)
	// Output:
	// <nil>
	// true the database is not migrated: there are no tables in schema elsewhere, but there are in jobq: say --schema jobq or set JOBQ_SCHEMA; to make others, run `jobq migrate up --schema elsewhere`
}

func ExampleClient_Enqueue() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	enqueued, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, &jobq.EnqueueOptions{
		Queue:       "images",
		MaxAttempts: 5,
		Timeout:     time.Minute,
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
	fmt.Println(job.Kind, job.State, string(job.Args))
	// Output: resize available {"image": "cat.jpg", "width": 640}
}

// A job that is to run once, however often it is enqueued before it has ended.
func ExampleClient_Enqueue_uniqueKey() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	for range 3 {
		enqueued, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, &jobq.EnqueueOptions{UniqueKey: "cat.jpg"})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("job", enqueued.ID, "duplicate:", enqueued.Duplicate)
	}
	// Output:
	// job 1 duplicate: false
	// job 1 duplicate: true
	// job 1 duplicate: true
}

// A value that is refused is named, with its limit.
func ExampleClient_Enqueue_invalid() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	_, err := client.Enqueue(ctx, Resize{}, &jobq.EnqueueOptions{MaxAttempts: 40_000})
	fmt.Println(errors.Is(err, jobq.ErrInvalid))
	fmt.Println(err)
	// Output:
	// true
	// enqueue: invalid value: max_attempts must be 1 to 32767, not 40000
}

// The job exists if the order does: both are of one transaction.
func ExampleClient_EnqueueTx() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	if _, err := client.Pool().Exec(ctx, "create table orders (image text)"); err != nil {
		fmt.Println(err)
		return
	}
	order := func(image string) error {
		return pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into orders values ($1)", image); err != nil {
				return err
			}
			if _, err := client.EnqueueTx(ctx, tx, Resize{image, 640}, nil); err != nil {
				return err
			}
			if image == "" {
				return errors.New("no image, no order")
			}
			return nil
		})
	}
	fmt.Println(order("cat.jpg"))
	fmt.Println(order(""))
	page, err := client.List(ctx, jobq.Filter{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("jobs:", len(page.Jobs))
	// Output:
	// <nil>
	// no image, no order
	// jobs: 1
}

// Thousands of jobs in one statement, all of them or none.
func ExampleClient_EnqueueMany() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	jobs := make([]jobq.EnqueueParams, 5000)
	for i := range jobs {
		jobs[i].Args = Resize{fmt.Sprintf("%d.jpg", i), 640}
		jobs[i].Queue = "images"
	}
	enqueued, err := client.EnqueueMany(ctx, jobs)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(enqueued), "jobs, the first is", enqueued[0].ID)
	// Output: 5000 jobs, the first is 1
}

// Two jobs side by side, and a third one that runs when both are over.
func ExampleClient_EnqueueGraph() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	var graph jobq.Graph
	graph.Add("small", Resize{"cat.jpg", 64}, nil)
	graph.Add("large", Resize{"cat.jpg", 640}, nil)
	graph.Add("told", jobq.RawArgs{Name: "tell"}, &jobq.EnqueueOptions{OnParentFailure: jobq.ParentFailureRun}, "small", "large")
	jobs, err := client.EnqueueGraph(ctx, &graph)
	if err != nil {
		fmt.Println(err)
		return
	}
	parents, err := client.Parents(ctx, jobs["told"].ID, 0, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, parent := range parents {
		fmt.Println(parent.Kind, parent.ID == jobs["small"].ID || parent.ID == jobs["large"].ID)
	}
	job, err := client.Get(ctx, jobs["told"].ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.State)
	// Output:
	// resize true
	// resize true
	// waiting
}

// Page by page through the jobs of a queue, newest first.
func ExampleClient_List() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	for i := range 5 {
		options := &jobq.EnqueueOptions{Queue: "images", Delay: time.Duration(i) * time.Hour}
		if _, err := client.Enqueue(ctx, Resize{"cat.jpg", 100 * i}, options); err != nil {
			fmt.Println(err)
			return
		}
	}
	filter := jobq.Filter{Queue: "images", Limit: 2}
	for {
		page, err := client.List(ctx, filter)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, job := range page.Jobs {
			fmt.Println(job.ID, job.State)
		}
		if page.Next == 0 {
			return
		}
		filter.Before = page.Next
	}
	// Output:
	// 5 scheduled
	// 4 scheduled
	// 3 scheduled
	// 2 scheduled
	// 1 available
}

func ExampleClient_Cancel() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	enqueued, err := client.Enqueue(ctx, Resize{"cat.jpg", 640}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(client.Cancel(ctx, enqueued.ID))
	fmt.Println(client.Cancel(ctx, 4711))
	// Output:
	// cancelled <nil>
	//  cancel job 4711: no such job
}

// A job is enqueued, run by a worker, and its result is read.
func ExampleClient_EnqueueAndWait() {
	ctx := context.Background()
	client, done := exampleClient()
	defer done()
	w, err := worker.New(client, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	type thumbnail struct{ Name string }
	err = worker.Handle(w, func(_ context.Context, job *worker.Job[Resize]) error {
		return job.SetResult(thumbnail{fmt.Sprintf("%d-%s", job.Args.Width, job.Args.Image)})
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	running := make(chan error)
	go func() { running <- w.Run(ctx) }()
	defer func() {
		w.Drain()
		if err := <-running; err != nil {
			fmt.Println(err)
		}
	}()

	ended, err := client.EnqueueAndWait(ctx, Resize{"cat.jpg", 640}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var result thumbnail
	if err := ended.Decode(&result); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ended.State, result.Name)
	// Output: completed 640-cat.jpg
}
