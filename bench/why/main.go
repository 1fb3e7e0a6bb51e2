// Command why measures how long jobq.why takes beside very many waiting jobs, on a private PostgreSQL in memory: for jobs at several
// places in the line, of partition keys, and scheduled ones, without statistics and with them.
//
//	cd bench && go run ./why             ten million jobs: some minutes, 4 GB in /dev/shm
//	cd bench && go run ./why -scale 0.01 to see that it works
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq/internal/measure"
	"github.com/jobq-dev/jobq/internal/postgres"
	"github.com/jobq-dev/jobq/migrate"
)

// The jobs, with scale 1. The keys have one job each, and their turns.
const (
	plain     = 8_000_000
	keyed     = 1_000_000
	scheduled = 1_000_000
	workers   = 200
	chunk     = 500_000
)

// Of each job, so many sessions ask as their first question, and one asks so many times.
const (
	sessions = 21
	calls    = 500
)

func main() {
	scale := flag.Float64("scale", 1, "multiplies the numbers of jobs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *scale); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, scale float64) (err error) {
	server, err := postgres.Start(ctx, postgres.Config{InMemory: true, Settings: map[string]string{
		"shared_buffers": "1GB", "max_wal_size": "1GB", "autovacuum": "off",
	}})
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, server.Stop(ending))
	}()
	pool, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := migrate.Up(ctx, pool, &migrate.Config{Logger: slog.New(slog.DiscardHandler)}); err != nil {
		return err
	}
	at := func(jobs int) int { return max(int(float64(jobs)*scale), 1) }
	if err := fill(ctx, pool, at); err != nil {
		return err
	}
	asked := []struct {
		name string
		id   int
	}{
		{"the first in the line", 1},
		{"in the middle of the line", at(plain) / 2},
		{"the last in the line", at(plain)},
		{"of the partition key that has the last turn", at(plain) + at(keyed)},
		{"without a key, beside all keys", at(plain) + at(keyed) + 1},
		{"scheduled", at(plain) + at(keyed) + 2},
	}
	fmt.Printf("%d jobs, %d of them of as many partition keys, %d scheduled; %d workers\n\n", at(plain)+at(keyed)+1+at(scheduled), at(keyed), at(scheduled), workers)
	fmt.Println("| job | statistics | first of a session, ms: median (most) | later, ms: median (p99, most) | buffers |\n|---|---|---|---|---|")
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			if _, err := pool.Exec(ctx, "analyze"); err != nil {
				return err
			}
		}
		for _, a := range asked {
			first, later, buffers, err := ask(ctx, server.URL("postgres"), a.id)
			if err != nil {
				return fmt.Errorf("%s: %w", a.name, err)
			}
			ms := func(times []time.Duration, q float64) string {
				return fmt.Sprintf("%.1f", measure.Quantile(times, q).Seconds()*1000)
			}
			fmt.Printf("| %s | %s | %s (%s) | %s (%s, %s) | %d |\n", a.name, statistics, ms(first, 0.5), ms(first, 1), ms(later, 0.5), ms(later, 0.99), ms(later, 1), buffers)
		}
	}
	return nil
}

// fill adds the jobs as they are when they wait, without triggers: the place in the line is the id.
func fill(ctx context.Context, pool *pgxpool.Pool, at func(int) int) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	exec := func(sql string, args ...any) {
		if err == nil {
			_, err = conn.Exec(ctx, sql, args...)
		}
	}
	exec("set session_replication_role = replica; set synchronous_commit = off")
	from := 0
	add := func(jobs int, columns, values string) {
		for first, last := from+1, from+jobs; first <= last && err == nil; first += chunk {
			exec("insert into jobq.pending (id, kind, "+columns+") select i, 'mail', "+values+" from generate_series($1::bigint, $2::bigint) i", first, min(first+chunk-1, last))
		}
		from += jobs
	}
	add(at(plain), "queue, position", "'bulk', i")
	add(at(keyed), "queue, position, partition_key", "'tenants', i, 'customer ' || i")
	exec("insert into jobq.lane (queue, key, turn) select 'tenants', p.partition_key, p.position from jobq.pending p where p.queue = 'tenants'")
	add(1, "queue, position", "'tenants', i")
	add(at(scheduled), "queue, run_at", "'bulk', now() + i * interval '1 s'")
	exec("select setval('jobq.job_id_seq', $1), setval('jobq.position_seq', $1)", from)
	exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots)
		select 'worker-' || i, i, 'host', 'v', '{"bulk": 10, "tenants": 10}', '{mail,report}', '{}' from generate_series(1, $1::integer) i`, workers)
	exec("set session_replication_role = origin; reset synchronous_commit")
	return err
}

// ask times the question, each time as the first of a session and then many times in one, and says how many buffers an answer looks at.
func ask(ctx context.Context, url string, id int) (first, later []time.Duration, buffers int, err error) {
	const question = "select w.reason, w.facts::text from jobq.why($1) w"
	timed := func(conn *pgx.Conn) (time.Duration, error) {
		began := time.Now()
		rows, err := conn.Query(ctx, question, id)
		if err != nil {
			return 0, err
		}
		reasons := 0
		for rows.Next() {
			reasons++
		}
		if err := rows.Err(); err != nil {
			return 0, err
		}
		if reasons == 0 {
			return 0, errors.New("no reason was given")
		}
		return time.Since(began), nil
	}
	for i := range sessions {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return nil, nil, 0, err
		}
		took, err := timed(conn)
		first = append(first, took)
		for n := 0; i == sessions-1 && n < calls && err == nil; n++ {
			took, err = timed(conn)
			later = append(later, took)
		}
		if err == nil && i == sessions-1 {
			buffers, err = looked(ctx, conn, id)
		}
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return nil, nil, 0, err
		}
	}
	slices.Sort(first)
	slices.Sort(later)
	return first, later, buffers, nil
}

// looked is how many buffers an answer looks at.
func looked(ctx context.Context, conn *pgx.Conn, id int) (int, error) {
	var content []byte
	if err := conn.QueryRow(ctx, fmt.Sprintf("explain (analyze, buffers, format json) select * from jobq.why(%d)", id)).Scan(&content); err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(content, &plans); err != nil || len(plans) == 0 {
		return 0, errors.Join(err, errors.New("no plan"))
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, nil
}
