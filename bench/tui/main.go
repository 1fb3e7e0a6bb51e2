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
// missed. It reads /proc, and so needs Linux and a server on this machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
)

// nothing is the load; probe is what is waited for on the screen.
type nothing struct{}

func (nothing) Kind() string { return "nothing" }

type probe struct {
	N int `json:"n"`
}

func (probe) Kind() string { return "probe" }

const (
	cells = 120
	// lines is the height that the screens are drawn for, and tall one that
	// shows all probes.
	lines, tall = 35, 100
	session     = "bench"
)

type bench struct {
	pool     *pgxpool.Pool
	client   *jobq.Client
	binary   string
	folder   string
	socket   string
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
	if err := b.fill(ctx, history); err != nil {
		return err
	}
	if !brief {
		if err := b.firstFrame(); err != nil {
			return err
		}
		if err := b.noMatch(); err != nil {
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

// fill makes a history in which one job of 2,000 has failed.
func (b *bench) fill(ctx context.Context, history int) error {
	var have int
	if err := b.pool.QueryRow(ctx, "select coalesce(sum(reltuples), 0)::bigint from pg_class where relname like 'finished\\_%' and relkind = 'r'").Scan(&have); err != nil {
		return err
	}
	if have < history*9/10 {
		_, err := b.pool.Exec(ctx, `insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts, crashes, args_apart, queue, kind, lease_owner, args, last_error)
			select nextval('jobq.job_id_seq'), t, 1, t - interval '80 ms', t - interval '1 s', t - interval '1 s',
				case when i % 2000 = 0 then 'failed' when i % 50000 = 1 then 'cancelled' else 'completed' end::jobq.job_state, 0, 1, 5, 0, false,
				'q' || i % 8, 'kind' || i % 20, 'web-1', '{"tenant": 4411}', case when i % 2000 = 0 then 'smtp 421 rate limited' end
			from (select i, now() - ($1 - i) * interval '3 ms' as t from generate_series(1, $1::integer) i) x`, history)
		if err == nil {
			_, err = b.pool.Exec(ctx, "vacuum (analyze) jobq.finished") // as autovacuum has done where a history has grown
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("history            %d finished jobs\n", max(have, history))
	return nil
}

func (b *bench) tmux(args ...string) string {
	out, err := exec.Command("tmux", append([]string{"-S", b.socket}, args...)...).CombinedOutput() // #nosec G204 -- a benchmark
	if err != nil {
		log.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// open starts the UI in a terminal that is there already, and returns when.
func (b *bench) open(height int, args ...string) (time.Time, error) {
	b.opened++ // a server of its own each time: the one before may still be ending
	b.socket = fmt.Sprintf("%s/tmux%d", b.folder, b.opened)
	b.tmux(append([]string{
		"-f", "/dev/null", "new-session", "-d", "-s", session, "-x", strconv.Itoa(cells), "-y", strconv.Itoa(height),
		"sh", "-c", `echo ready; read -r _; exec "$@"`, "sh", "env", "TERM=screen-256color", "LC_ALL=C.UTF-8", b.binary, "tui",
	}, args...)...)
	if _, err := b.await(func(s string) bool { return strings.Contains(s, "ready") }); err != nil {
		return time.Time{}, err
	}
	began := time.Now()
	b.tmux("send-keys", "-t", session, "Enter")
	return began, nil
}

func (b *bench) close() { b.tmux("kill-server") }

// lookEvery leaves the UI and the server the processors: a look is a process.
const lookEvery = 5 * time.Millisecond

// await waits until the screen satisfies, and returns when it did.
func (b *bench) await(satisfied func(string) bool) (time.Time, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(lookEvery) {
		screen := b.tmux("capture-pane", "-p", "-t", session)
		if satisfied(screen) {
			return time.Now(), nil
		}
	}
	return time.Time{}, fmt.Errorf("the screen never came; it is:\n%s", b.tmux("capture-pane", "-p", "-t", session))
}

func (b *bench) firstFrame() error {
	for screen, want := range map[string]string{"overview": "Queues ", "jobs": "newest first"} {
		var times []time.Duration
		for range 7 {
			began, err := b.open(lines, "--open", screen)
			if err != nil {
				return err
			}
			at, err := b.await(func(s string) bool {
				return strings.Contains(s, want) && !strings.Contains(s, "asking the database")
			})
			if err != nil {
				return err
			}
			times = append(times, at.Sub(began))
			b.close()
		}
		slices.Sort(times)
		fmt.Printf("first frame        %-9s median %s, slowest %s of %d, from the command to all panels\n", screen, round(times[3]), round(times[6]), len(times))
		b.bars.atMost("first frame, median", times[3], firstFrameMax)
	}
	return nil
}

// noMatch filters by a kind that no job has.
func (b *bench) noMatch() error {
	if _, err := b.open(tall, "--open", "jobs"); err != nil {
		return err
	}
	defer b.close()
	if _, err := b.await(func(s string) bool { return strings.Contains(s, "newest first") && !strings.Contains(s, "asking") }); err != nil {
		return err
	}
	b.tmux("send-keys", "-t", session, "/")
	time.Sleep(300 * time.Millisecond)
	b.tmux("send-keys", "-t", session, "-l", "kind:nosuch")
	b.tmux("send-keys", "-t", session, "Enter")
	began := time.Now()
	deeper := "only the newest"
	at, err := b.await(func(s string) bool { return strings.Contains(s, "no job matches") })
	if err != nil {
		return err
	}
	if !strings.Contains(b.tmux("capture-pane", "-p", "-t", session), deeper) {
		deeper = "all of them were searched"
	}
	fmt.Printf("no match           after %s: %s\n", round(at.Sub(began)), deeper)
	b.bars.atMost("a filter without a match", at.Sub(began), noMatchMax)
	return nil
}

// usage is CPU time and memory of the UI, and CPU time of its sessions.
type usage struct {
	at            time.Time
	ui            time.Duration
	sessions      map[int32]time.Duration // by the server's process
	residentBytes int64
}

// serverSince is what the sessions have used that are there now.
func (u usage) serverSince(before usage) (used time.Duration) {
	for pid, total := range u.sessions {
		used += total - before.sessions[pid]
	}
	return used
}

func (b *bench) usage(ctx context.Context) (u usage, err error) {
	u.at = time.Now()
	pid, _ := strconv.Atoi(strings.TrimSpace(b.tmux("display", "-p", "-t", session, "#{pane_pid}")))
	u.ui, u.residentBytes = processTime(pid), resident(pid)
	rows, err := b.pool.Query(ctx, "select pid from pg_stat_activity where application_name = 'jobq-tui' or application_name = 'jobq-listen' and query not like '%jobq_work%'")
	if err != nil {
		return u, err
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	u.sessions = make(map[int32]time.Duration, len(pids))
	for _, pid := range pids {
		u.sessions[pid] = processTime(int(pid))
	}
	return u, err
}

func processTime(pid int) time.Duration {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // gone: no time
	_, rest, _ := strings.Cut(string(content), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

func resident(pid int) int64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // gone: no memory
	_, rest, _ := strings.Cut(string(content), "VmRSS:")
	kilobytes, _ := strconv.ParseInt(strings.Fields(rest + " 0")[0], 10, 64)
	return kilobytes << 10
}

func (b *bench) measure(ctx context.Context, name string, span time.Duration) error {
	before, err := b.usage(ctx)
	if err != nil {
		return err
	}
	done := b.done.Load()
	time.Sleep(span)
	after, err := b.usage(ctx)
	if err != nil {
		return err
	}
	elapsed := after.at.Sub(before.at)
	ui := 100 * (after.ui - before.ui).Seconds() / elapsed.Seconds()
	server := 100 * after.serverSince(before).Seconds() / elapsed.Seconds()
	fmt.Printf("%-18s UI %.1f %% of a core, %d MB; its sessions %.1f %% of a core; %.0f jobs/s\n", name,
		ui, after.residentBytes>>20, server, float64(b.done.Load()-done)/elapsed.Seconds())
	b.bars.check(ui < uiCPUMax, "UI's CPU time %.1f %%, under %.0f %%", ui, uiCPUMax)
	b.bars.check(after.residentBytes < uiBytesMax, "UI's memory %d MB, under %d MB", after.residentBytes>>20, uiBytesMax>>20)
	b.bars.check(server <= serverCPUMax, "server's CPU time %.1f %%, at most %.0f %%", server, serverCPUMax)
	return nil
}

func (b *bench) rest(ctx context.Context, span time.Duration) error {
	for _, screen := range []string{"overview", "jobs"} {
		if _, err := b.open(tall, "--open", screen); err != nil {
			return err
		}
		if _, err := b.await(func(s string) bool { return strings.Contains(s, "live") }); err != nil {
			return err
		}
		time.Sleep(time.Second)
		if err := b.measure(ctx, "at rest, "+screen, span); err != nil {
			return err
		}
		b.close()
	}
	return nil
}

// load runs jobs as fast as this machine can, with probes among them.
func (b *bench) load(ctx context.Context, queue string, span time.Duration, probes int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w, err := worker.New(b.client, &worker.Config{Queues: map[string]int{"load": 100 + probes, "quiet": probes}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	for range probes {
		b.release = append(b.release, make(chan struct{}))
	}
	b.released = make([]time.Time, probes)
	if err := worker.Handle(w, func(context.Context, *worker.Job[nothing]) error { b.done.Add(1); return nil }); err != nil {
		return err
	}
	if err := worker.Handle(w, func(ctx context.Context, job *worker.Job[probe]) error {
		select {
		case <-b.release[job.Args.N]:
		case <-ctx.Done():
		}
		b.released[job.Args.N] = time.Now()
		return nil
	}); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		<-ended
	}()
	ids := make([]int64, probes)
	for i := range probes {
		job, err := b.client.Enqueue(ctx, probe{i}, &jobq.EnqueueOptions{Queue: queue})
		if err != nil {
			return err
		}
		ids[i] = job.ID
	}
	go b.feed(ctx)
	if err := b.silence(ctx, span/2); err != nil {
		return err
	}
	if _, err := b.open(tall, "--open", "overview"); err != nil {
		return err
	}
	if _, err := b.await(func(s string) bool { return strings.Contains(s, "live") }); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	if err := b.measure(ctx, "load, overview", span); err != nil {
		return err
	}
	b.tmux("send-keys", "-t", session, "2")
	time.Sleep(2 * time.Second)
	if err := b.measure(ctx, "load, jobs", span); err != nil {
		return err
	}
	return b.latency(ids, queue)
}

// feed keeps the queue filled.
func (b *bench) feed(ctx context.Context) {
	jobs := make([]jobq.EnqueueParams, 2000)
	for i := range jobs {
		jobs[i] = jobq.EnqueueParams{Args: nothing{}, EnqueueOptions: jobq.EnqueueOptions{Queue: "load"}}
	}
	var sent int64
	for ctx.Err() == nil {
		if sent-b.done.Load() > 6000 {
			time.Sleep(time.Millisecond)
			continue
		}
		if _, err := b.client.EnqueueMany(ctx, jobs); err != nil {
			return
		}
		sent += int64(len(jobs))
	}
}

// silence counts digests while nobody watches: an ear on their channel is no watcher.
func (b *bench) silence(ctx context.Context, span time.Duration) error {
	conn, err := pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	var channel string
	if err := conn.QueryRow(ctx, "select jobq.channel('event')").Scan(&channel); err != nil {
		return err
	}
	time.Sleep(16 * time.Second) // watchers before are forgotten
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	count, done := 0, b.done.Load()
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	for {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			break
		}
		count++
	}
	fmt.Printf("nobody watches     %d digests in %s at %.0f jobs/s\n", count, span, float64(b.done.Load()-done)/span.Seconds())
	b.bars.check(count == 0, "digests without a watcher: %d, none", count)
	return nil
}

// latency lets probes end one by one, and waits for each to be seen.
func (b *bench) latency(ids []int64, queue string) error {
	b.tmux("send-keys", "-t", session, "/")
	time.Sleep(300 * time.Millisecond)
	b.tmux("send-keys", "-t", session, "-l", "state:running kind:probe")
	b.tmux("send-keys", "-t", session, "Enter")
	if _, err := b.await(func(s string) bool { return strings.Contains(s, fmt.Sprintf("%d running", ids[len(ids)-1])) }); err != nil {
		return err
	}
	var times []time.Duration
	done, began := b.done.Load(), time.Now()
	for i := len(ids) - 1; i >= 0; i-- {
		row := fmt.Sprintf("%d completed", ids[i])
		close(b.release[i])
		at, err := b.await(func(s string) bool { return strings.Contains(s, row) })
		if err != nil {
			return err
		}
		times = append(times, at.Sub(b.released[i]))
		time.Sleep(time.Duration(50+i*7%100) * time.Millisecond)
	}
	slices.Sort(times)
	fmt.Printf("event to screen    p50 %s, p90 %s, p99 %s of %d, in queue %s at %.0f jobs/s; from the handler's return to tmux's screen\n",
		round(times[len(times)/2]), round(times[len(times)*9/10]), round(times[len(times)*99/100]), len(times), queue,
		float64(b.done.Load()-done)/time.Since(began).Seconds())
	b.bars.atMost("event to screen, median", times[len(times)/2], eventMedianMax)
	b.bars.atMost("event to screen, 99th percentile", times[len(times)*99/100], eventWorstMax)
	b.close()
	return nil
}

func round(span time.Duration) time.Duration { return span.Round(time.Millisecond) }
