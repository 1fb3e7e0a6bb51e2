package programs_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// startPrograms runs jobs of kind "p" that write their pids, with that of a child,
// to a file, ignore SIGTERM, and sleep; or do something else meanwhile, if there
// is a script for that. The last one has a lease of its own.
func startPrograms(t *testing.T, client *jobq.Client, count int, lostTerminates bool, change operator.QueueChange, meanwhile string) (*running, []int64, func(id int64) []int) {
	t.Helper()
	folder := t.TempDir()
	script := fmt.Sprintf(`trap "" TERM; sleep 1000 & echo $$ $! > %[1]s/$JOBQ_JOB_ID.new; mv %[1]s/$JOBQ_JOB_ID.new %[1]s/$JOBQ_JOB_ID; %[2]s wait`, folder, meanwhile)
	require.NoError(t, jobtest.ErrorOf(operator.New(client, "test").SetQueue(context.Background(), "default", change)))
	w, err := worker.New(client, &worker.Config{
		NoJanitor: true,
		Queues:    map[string]worker.QueueConfig{"default": {Slots: count}}, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	p := programs.New(w)
	command := shellCommand(script)
	command.LostTerminates = lostTerminates
	require.NoError(t, p.HandleCommand("p", command, nil))
	ids := make([]int64, count)
	for i := range count - 1 {
		ids[i] = enqueueRaw(t, client, "p", "{}", nil)
	}
	pids := func(id int64) []int {
		var found []int
		content, err := os.ReadFile(filepath.Join(folder, fmt.Sprint(id)))
		for _, word := range strings.Fields(string(content)) {
			pid, parseErr := strconv.Atoi(word)
			require.NoError(t, parseErr)
			found = append(found, pid)
		}
		if err != nil {
			return nil
		}
		return found
	}
	r := run(t, w)
	begun := func(ids ...int64) {
		for _, id := range ids {
			// Many shims start at once here, and with the race detector each takes its time.
			require.Eventually(t, func() bool { return len(pids(id)) == 2 }, patience, 20*time.Millisecond)
		}
	}
	begun(ids[:count-1]...)
	ids[count-1] = enqueueRaw(t, client, "p", "{}", nil)
	begun(ids[count-1])
	return r, ids, pids
}

func alive(pids []int) (count int) {
	for _, pid := range pids {
		if isRunning(pid) {
			count++
		}
	}
	return count
}

// isRunning is false for a zombie too.
func isRunning(pid int) bool {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(content), ") Z ")
}

// One job of many is taken away by SQL: its programs are dead long before its
// lease would have ended by the database's clock, all others run on, and no attempt
// is counted. Whatever the loss means: SIGKILL, or SIGTERM that is ignored.
func TestOneLossOfMany(t *testing.T) {
	t.Parallel()
	for lostTerminates, count := range map[bool]int{false: 64, true: 8} {
		client := newClient(t)
		lease, extendEvery := 3*time.Minute, 2*time.Second
		r, ids, pids := startPrograms(t, client, count, lostTerminates, operator.QueueChange{Lease: &lease, ExtendEvery: &extendEvery}, "")
		ctx, lost := context.Background(), ids[count-1]
		var leaseEnd time.Time
		require.NoError(t, pgx.BeginFunc(ctx, client.Pool(), func(tx pgx.Tx) error {
			if err := pgtest.LockRunning(ctx, tx, lost); err != nil {
				return err
			}
			if err := tx.QueryRow(ctx, "select lease_expires_at from jobq.job where id = $1", lost).Scan(&leaseEnd); err != nil {
				return err
			}
			return pgtest.StealLeases(ctx, tx, "thief", lost)
		}))
		require.Eventually(t, func() bool { return alive(pids(lost)) == 0 }, patience, 5*time.Millisecond)
		requireBefore(t, client.Pool(), leaseEnd)
		for _, id := range ids {
			if id != lost {
				require.Equal(t, 2, alive(pids(id)))
			}
		}
		var owned, attempts int
		require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) filter (where lease_owner <> 'thief'), sum(attempts) from jobq.job where state = 'running'").Scan(&owned, &attempts))
		require.Equal(t, count-1, owned)
		require.Zero(t, attempts)
		require.NoError(t, r.drain())
	}
}

// asWitness makes the test binary a program that writes all the time, to a file,
// when it was last running and how long it has waited for that at most, in
// nanoseconds.
const asWitness = "as-witness"

func witness(path string) {
	file, err := os.Create(path)
	if err != nil {
		os.Exit(1)
	}
	longest, last := time.Duration(0), time.Now()
	for range time.Tick(5 * time.Millisecond) {
		now := time.Now()
		longest, last = max(longest, now.Sub(last)), now
		if _, err := file.WriteAt(fmt.Appendf(nil, "%20d %20d", now.UnixNano(), longest), 0); err != nil {
			os.Exit(1)
		}
	}
}

// A database that does not answer any more costs the worker its leases: no
// program runs when the first of them ends by the database's clock. What counts
// is when the programs themselves last ran, as they have written down, and not
// when this test comes to look. Programs that waited for a processor for longer
// than half of the kill margin prove nothing.
func TestBlackholedDatabase(t *testing.T) {
	t.Parallel()
	for _, lease := range fencing {
		if blackhole(t, lease) > 0 {
			return
		}
	}
	skipStarved(t)
}

// blackhole says how many programs were checked.
func blackhole(t *testing.T, lease time.Duration) (checked int) {
	t.Helper()
	folder, url := t.TempDir(), pgtest.URL(t)
	proxy := pgtest.StartProxy(t, url)
	client, err := jobq.NewClient(pgtest.Connect(t, proxy.URL), nil)
	require.NoError(t, err)
	direct := pgtest.Connect(t, url)
	self, err := os.Executable()
	require.NoError(t, err)
	r, ids, pids := startPrograms(t, client, 8, false, operator.QueueChange{Lease: &lease, ExtendEvery: new(500 * time.Millisecond)}, fmt.Sprintf("%s %s %s/$JOBQ_JOB_ID &", self, asWitness, folder))
	seen := func(id int64) (last time.Time, longest time.Duration) {
		content, _ := os.ReadFile(filepath.Join(folder, fmt.Sprint(id))) // not there yet
		var lastNs, longestNs int64
		_, _ = fmt.Sscan(string(content), &lastNs, &longestNs)
		return time.Unix(0, lastNs), time.Duration(longestNs)
	}
	for _, id := range ids {
		require.Eventually(t, func() bool { last, _ := seen(id); return last.Unix() > 0 }, patience, 20*time.Millisecond)
	}
	proxy.Swallow()
	left := func() (count int) {
		for _, id := range ids {
			count += alive(pids(id))
		}
		return count
	}
	require.Eventually(t, func() bool { return left() == 0 }, patience, 20*time.Millisecond)
	var leaseEnd time.Time
	require.NoError(t, direct.QueryRow(context.Background(), "select min(lease_expires_at) from jobq.job").Scan(&leaseEnd))
	for _, id := range ids {
		last, longest := seen(id)
		t.Logf("ran until %s before the end of a lease of %s, and waited for a processor for %s at most", leaseEnd.Sub(last), lease, longest)
		if longest < halfMargin(lease) {
			require.Less(t, last, leaseEnd)
			checked++
		}
	}
	proxy.Heal()
	_ = r.drain()
	var attempts int
	require.NoError(t, direct.QueryRow(context.Background(), "select coalesce(sum(attempts), 0) from jobq.job").Scan(&attempts))
	require.Zero(t, attempts)
	return checked
}

// requireBefore says whether it is earlier than that by the database's clock.
func requireBefore(t *testing.T, pool *pgxpool.Pool, leaseEnd time.Time) {
	t.Helper()
	var left float64
	require.NoError(t, pool.QueryRow(context.Background(), "select extract(epoch from $1::timestamptz - clock_timestamp())::float8", leaseEnd).Scan(&left))
	t.Logf("all dead %.2f s before the lease would have ended", left)
	require.Positive(t, left)
}

// written is a program that somebody writes to, so that it cannot be started.
type written struct {
	path    string
	release func()
}

func busyProgram(t *testing.T) written {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	binary, err := os.ReadFile("/bin/true")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, binary, 0o700))
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	release := sync.OnceFunc(func() { require.NoError(t, file.Close()) })
	t.Cleanup(release)
	return written{path, release}
}
