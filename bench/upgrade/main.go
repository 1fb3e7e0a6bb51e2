// Command upgrade measures an upgrade with the programs that people have: jobq of an earlier commit works under load while
// jobq of this working tree migrates its database, takes its place, and goes back again. Every job must run exactly once,
// since nobody is killed, and no program may fail. notes/upgrade.md has the results.
//
// Where the earlier commit has the same tables, jobq of this working tree gets further migrations, which later.go has: the
// earlier program then knows nothing of them, as after a real release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// asHandler makes this program the handler of the jobs: as-handler FILE WORKER.
const asHandler = "as-handler"

type options struct {
	from    string        // the earlier commit
	span    time.Duration // of each part without a migration
	every   time.Duration // between two inserts of an inserter
	backlog int           // jobs that wait: half of them for tomorrow, half for a worker that never comes
	history int           // finished jobs
	running int           // jobs that run during the whole trial
}

func main() {
	if len(os.Args) == 4 && os.Args[1] == asHandler {
		if err := handle(os.Args[2], os.Args[3]); err != nil {
			log.Fatal(err)
		}
		return
	}
	var o options
	flag.StringVar(&o.from, "from", "HEAD", "commit or tag of the earlier jobq")
	flag.DurationVar(&o.span, "span", 15*time.Second, "how long each part without a migration lasts")
	flag.DurationVar(&o.every, "every", 10*time.Millisecond, "how often each of the two inserters adds a job")
	flag.IntVar(&o.backlog, "backlog", 1_000_000, "jobs that wait: half of them are scheduled for tomorrow, half are in a queue that has no worker")
	flag.IntVar(&o.history, "history", 1_000_000, "finished jobs")
	flag.IntVar(&o.running, "running", 1_000, "jobs that one worker of the earlier jobq runs during the whole trial")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o options) (err error) {
	folder, err := os.MkdirTemp("", "jobq-upgrade")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chmod(folder, 0o755); err != nil { // #nosec G302 -- the server may run as another user
		return err
	}
	old, next, err := buildBoth(ctx, o.from, folder)
	if err != nil {
		return err
	}
	fmt.Printf("%s: its tables have version %d, and those of this working tree %d\n", old.name, old.tables, next.tables)
	data := filepath.Join(folder, "data")
	server, err := postgres.Start(ctx, postgres.Config{DataDir: data, Durable: true, Settings: map[string]string{
		"shared_buffers": "256MB", "log_line_prefix": logPrefix, "log_parameter_max_length": "0",
		"log_min_duration_statement": fmt.Sprint(logged.Milliseconds()),
	}})
	if err != nil {
		return err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Stop(stopping))
	}()
	t := &trial{options: o, folder: folder, url: server.URL("postgres"), log: filepath.Join(data, "postgres.log"), old: old, next: next}
	if t.pool, err = pgxpool.New(ctx, t.url); err != nil {
		return err
	}
	defer t.pool.Close()
	if t.held, err = newHeld(ctx); err != nil {
		return err
	}
	defer t.held.close()
	fmt.Printf("PostgreSQL %s, durable\n", server.Version())
	if err := t.upgrade(ctx); err != nil {
		return err
	}
	return t.report(ctx)
}
