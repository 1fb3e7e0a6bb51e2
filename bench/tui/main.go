// Command tui measures what the terminal UI costs and how fast it is, in a
// real terminal (tmux), on the database of DATABASE_URL, which it fills with
// as many finished jobs as asked for:
//
//	jobq dev --ephemeral -- go run ./tui -jobq $(which jobq) -history 10000000
//
// It measures the time to the first frame, what the UI and its sessions use of
// a core at rest and under load, how long it takes from the end of a run to
// the new state on the screen, and how many notifications there are without a
// watcher; a verdict follows each figure, and the exit code is 1 when a bar was
// missed. A load of less than 10,000 jobs/s is such a bar: under less, the other
// figures say nothing. It reads /proc, and so needs Linux and a server on this
// machine: what cannot be read is an error, as is a load that ends early.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
)

type bench struct {
	pool     *pgxpool.Pool
	client   *jobq.Client
	binary   string
	folder   string
	socket   string // of the terminal that is open, or ""
	opened   int
	done     atomic.Int64
	release  []chan struct{}
	released []time.Time
	bars     bars
}

func main() {
	history := flag.Int("history", 10_000_000, "finished jobs to have")
	binary := flag.String("jobq", "jobq", "the command to measure")
	span := flag.Duration("span", 20*time.Second, "how long each measurement takes")
	probes := flag.Int("probes", 60, "jobs to wait for on the screen")
	brief := flag.Bool("brief", false, "only measure under load")
	queue := flag.String("probe-queue", "load", "the queue of the probes: load is the busy one")
	flag.Parse()
	if err := run(*history, *binary, *queue, *span, *probes, *brief); err != nil {
		log.Fatal(err)
	}
}

func run(history int, binary, queue string, span time.Duration, probes int, brief bool) error {
	if probes < 1 {
		return errors.New("no probes: at least one has to be waited for")
	}
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "jobq-bench-tui")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	b := &bench{pool: pool, client: client, binary: binary, folder: folder}
	defer b.close()
	if err := b.fill(ctx, history); err != nil {
		return err
	}
	if !brief {
		if err := b.firstFrame(ctx); err != nil {
			return err
		}
		if err := b.noMatch(ctx); err != nil {
			return err
		}
		if err := b.rest(ctx, span); err != nil {
			return err
		}
	}
	if err := b.load(ctx, queue, span, probes); err != nil {
		return err
	}
	return b.bars.err()
}
