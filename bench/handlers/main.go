// Command handlers measures what a job costs that a program runs: one process
// for each job, a process that is kept, and an HTTP server, each with several
// numbers of slots, on a private PostgreSQL with durable commits.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

const kind = "nothing"

// asHandler makes this program a kept handler that does nothing.
const asHandler = "as-handler"

// python is the same in Python.
const python = `
import json, sys
for line in sys.stdin:
    print('{"id": %d, "done": true}' % json.loads(line)["id"], flush=True)
`

// contender is a way to run jobs.
type contender struct {
	name   string
	jobs   int
	handle func(w *worker.Worker) error
}

func main() {
	programs.MaybeRunShim()
	if len(os.Args) == 2 && os.Args[1] == asHandler {
		handleNothing()
		return
	}
	scale := flag.Float64("scale", 1, "multiplies the number of jobs")
	flag.Parse()
	if err := run(context.Background(), *scale); err != nil {
		log.Fatal(err)
	}
}

func handleNothing() {
	out := bufio.NewWriter(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var job struct{ ID int64 }
		if json.Unmarshal(lines.Bytes(), &job) != nil {
			os.Exit(1)
		}
		fmt.Fprintf(out, "{\"id\": %d, \"done\": true}\n", job.ID)
		if out.Flush() != nil {
			return
		}
	}
}

func run(ctx context.Context, scale float64) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: true, Settings: map[string]string{"shared_buffers": "256MB"}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(ctx) }()
	answering := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer answering.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	contenders := []contender{
		{"Go handler", 20_000, func(w *worker.Worker) error {
			return worker.HandleRaw(w, kind, func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil)
		}},
		{"program for each job: true", 3_000, func(w *worker.Worker) error {
			return programs.New(w).HandleCommand(kind, programs.Command{Args: []string{"/bin/true"}}, nil)
		}},
		{"kept process, Go", 20_000, func(w *worker.Worker) error {
			return programs.New(w).HandleStream(kind, programs.Stream{Command: programs.Command{Args: []string{self, asHandler}}}, nil)
		}},
		{"HTTP server, Go, same process", 20_000, func(w *worker.Worker) error {
			return programs.New(w).HandleHTTP(kind, programs.HTTP{URL: answering.URL}, nil)
		}},
	}
	// The interpreter itself, and not a script that looks for one.
	if found, err := exec.Command("python3", "-c", "import sys; print(sys.executable, end='')").Output(); err == nil {
		path := string(found)
		contenders = append(contenders,
			contender{"program for each job: python3 -c pass", 500, func(w *worker.Worker) error {
				return programs.New(w).HandleCommand(kind, programs.Command{Args: []string{path, "-c", "pass"}}, nil)
			}},
			contender{"kept process, Python", 20_000, func(w *worker.Worker) error {
				return programs.New(w).HandleStream(kind, programs.Stream{Command: programs.Command{Args: []string{path, "-c", python}}}, nil)
			}})
	}
	database := 0
	for _, c := range contenders {
		for _, slots := range []int{1, 2, 4, 8, 16, 32} {
			database++
			rate, err := measure(ctx, server, fmt.Sprintf("d%d", database), c, slots, int(float64(c.jobs)*scale))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Printf("%-40s %2d slots  %7.0f jobs/s\n", c.name, slots, rate)
		}
	}
	return nil
}

// measure enqueues jobs, and has one worker run them.
func measure(ctx context.Context, server *postgres.Server, database string, c contender, slots, jobs int) (float64, error) {
	admin, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return 0, err
	}
	_, err = admin.Exec(ctx, "create database "+database)
	admin.Close()
	if err != nil {
		return 0, err
	}
	pool, err := pgxpool.New(ctx, server.URL(database))
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Logger: quiet}); err != nil {
		return 0, err
	}
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return 0, err
	}
	batch := make([]jobq.EnqueueParams, jobs)
	for i := range batch {
		batch[i].Args = jobq.RawArgs{Name: kind}
	}
	if _, err := client.EnqueueMany(ctx, batch); err != nil {
		return 0, err
	}
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Queues:    map[string]worker.QueueConfig{"default": {Slots: slots}}, Logger: quiet, Batch: worker.Batch{ExitWhenEmpty: true},
	})
	if err != nil {
		return 0, err
	}
	if err := c.handle(w); err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := w.Run(ctx); err != nil {
		return 0, err
	}
	if done := w.Counts().Completed; done != int64(jobs) {
		return 0, fmt.Errorf("%d of %d jobs completed", done, jobs)
	}
	var last time.Time // the worker itself looks only now and then whether all is done
	if err := pool.QueryRow(ctx, "select max(finished_at) from jobq.job").Scan(&last); err != nil {
		return 0, err
	}
	return float64(jobs) / last.Sub(begun).Seconds(), nil
}
