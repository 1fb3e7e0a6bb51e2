// Command layout measures the table layouts that docs/decisions/0001 chooses
// from: hand-written SQL for the full life of a job, on a private PostgreSQL
// with durable commits, in interleaved rounds.
package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/jobq-dev/jobq/bench/layouts"
	"github.com/jobq-dev/jobq/internal/postgres"
)

const (
	connections = 2
	batch       = 500
)

// figures are what one round of one layout came to.
type figures struct {
	insertPerSecond, drainPerSecond, serverMicros, walBytes float64
}

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each layout and size")
	scale := flag.Float64("scale", 1, "multiplies the numbers of jobs")
	flag.Parse()
	if err := run(context.Background(), *rounds, *scale); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, rounds int, scale float64) error {
	server, err := postgres.Start(ctx, postgres.Config{Durable: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "8GB", "autovacuum_naptime": "5s",
	}})
	if err != nil {
		return err
	}
	defer func() { _ = server.Stop(ctx) }()
	fmt.Printf("%-28s %-8s %14s %14s %14s %12s\n", "layout", "args", "insert/s", "drain/s", "server us/job", "WAL B/job")
	for _, size := range []struct {
		name        string
		bytes, jobs int
	}{{"100 B", 100, 40_000}, {"2 kB", 2_000, 40_000}, {"100 kB", 100_000, 2_000}} {
		results := make(map[string][]figures)
		for range rounds {
			for _, layout := range layouts.All() {
				f, err := measure(ctx, server, layout, size.bytes, int(float64(size.jobs)*scale))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", layout.Name, size.name, err)
				}
				results[layout.Name] = append(results[layout.Name], f)
			}
		}
		for _, layout := range layouts.All() {
			report(layout.Name, size.name, results[layout.Name])
		}
	}
	return nil
}

// report prints the median and, of the drain, the range.
func report(layout, size string, all []figures) {
	median := func(value func(figures) float64) float64 {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = value(f)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	drains := make([]float64, len(all))
	for i, f := range all {
		drains[i] = f.drainPerSecond
	}
	fmt.Printf("%-28s %-8s %14.0f %14.0f %14.1f %12.0f   drain %.0f to %.0f\n", layout, size,
		median(func(f figures) float64 { return f.insertPerSecond }), median(func(f figures) float64 { return f.drainPerSecond }),
		median(func(f figures) float64 { return f.serverMicros }), median(func(f figures) float64 { return f.walBytes }),
		slices.Min(drains), slices.Max(drains))
}

func measure(ctx context.Context, server *postgres.Server, layout layouts.Layout, argBytes, jobs int) (figures, error) {
	conns := make([]*pgx.Conn, connections)
	for i := range conns {
		conn, err := pgx.Connect(ctx, server.URL("postgres"))
		if err != nil {
			return figures{}, err
		}
		defer func() { _ = conn.Close(ctx) }()
		conns[i] = conn
	}
	setUp := "drop schema if exists layout cascade; create schema layout; set search_path = layout;" + layout.Tables
	if _, err := conns[0].Exec(ctx, setUp); err != nil {
		return figures{}, err
	}
	for _, conn := range conns {
		if _, err := conn.Exec(ctx, "set search_path = layout; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; checkpoint"); err != nil {
			return figures{}, err
		}
	}
	args, err := randomArgs(argBytes)
	if err != nil {
		return figures{}, err
	}
	var f figures
	started, wal := time.Now(), position(ctx, conns[0])
	for range jobs / batch {
		if _, err := conns[0].Exec(ctx, layout.Insert, batch, args); err != nil {
			return figures{}, err
		}
	}
	f.insertPerSecond = float64(jobs) / time.Since(started).Seconds()
	insertWAL := position(ctx, conns[0]) - wal

	pids := make([]uint32, len(conns))
	for i, conn := range conns {
		pids[i] = conn.PgConn().PID()
	}
	cpu, wal, started := cpuTime(pids), position(ctx, conns[0]), time.Now()
	var group errgroup.Group
	for i, conn := range conns {
		group.Go(func() error { return layout.Drain(ctx, conn, fmt.Sprint("owner", i), batch, func(int) {}) })
	}
	if err := group.Wait(); err != nil {
		return figures{}, err
	}
	f.drainPerSecond = float64(jobs) / time.Since(started).Seconds()
	f.serverMicros = float64((cpuTime(pids) - cpu).Microseconds()) / float64(jobs)
	f.walBytes = (insertWAL + position(ctx, conns[0]) - wal) / float64(jobs)
	return f, nil
}

// randomArgs are JSON that does not compress much: base64 of random bytes.
func randomArgs(length int) (string, error) {
	random := make([]byte, length*3/4)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	return `{"d": "` + base64.StdEncoding.EncodeToString(random) + `"}`, nil
}

// position is how many bytes of WAL the server has written.
func position(ctx context.Context, conn *pgx.Conn) (bytes float64) {
	if err := conn.QueryRow(ctx, "select (pg_current_wal_insert_lsn() - '0/0')::float8").Scan(&bytes); err != nil {
		log.Fatal(err)
	}
	return bytes
}

// cpuTime is what the backends have used, by Linux's count in ticks of 10 ms.
func cpuTime(pids []uint32) time.Duration {
	var total time.Duration
	for _, pid := range pids {
		content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			log.Fatal(err)
		}
		var skip string
		var number, user, system int64
		if _, err := fmt.Sscan(string(content), &number, &skip, &skip, &number, &number, &number, &number, &number, &number,
			&number, &number, &number, &number, &user, &system); err != nil {
			log.Fatal(err)
		}
		total += time.Duration(user+system) * 10 * time.Millisecond
	}
	return total
}
