// Command migration measures what a change of the table layout costs those who
// are at work: a database of the layout before docs/decisions/0013 is moved to
// today's under load, and back. It checks that nothing is lost and nothing runs
// twice, and prints the longest stalls. The server is private and durable.
//
// The first layout is that of commit b792e27: a job is in pending, running or
// finished. The second is sql/migrations. No release has had the first, so this
// is no migration for users, but what one for them would be made from.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

func main() {
	factor := flag.Float64("scale", 1, "multiplies 1,000,000 waiting, 1,000 running and 1,000,000 finished jobs")
	waiting := flag.Int("waiting", 0, "waiting jobs, if not as scaled")
	running := flag.Int("running", 0, "running jobs, if not as scaled")
	finished := flag.Int("finished", 0, "finished jobs, if not as scaled")
	calm := flag.Int("calm", 2000, "inserts and claims before each direction, to compare with")
	flag.Parse()
	size := scaled(*factor)
	for flagged, value := range map[*int]*int{waiting: &size.waiting, running: &size.running, finished: &size.finished} {
		if *flagged > 0 {
			*value = *flagged
		}
	}
	if err := measureOn(context.Background(), os.Stdout, size, *calm); err != nil {
		log.Fatal(err)
	}
}

// measureOn starts a server for the measurement and removes it afterwards.
func measureOn(ctx context.Context, out io.Writer, size sizes, calm int) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(context.WithoutCancel(ctx)) }() // it is removed with its folder anyhow
	if err := makeSecond(ctx, server.URL("postgres")); err != nil {
		return err
	}
	fmt.Fprintf(out, "PostgreSQL %s, %d waiting, %d running, %d finished\n", server.Version(), size.waiting, size.running, size.finished)
	return thereAndBack(ctx, out, server.URL("postgres"), size, calm)
}

// makeSecond makes the tables of sql/migrations.
func makeSecond(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = migrate.Up(ctx, pool, &migrate.Config{Logger: slog.New(slog.DiscardHandler)})
	return err
}
