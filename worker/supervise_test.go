package worker_test

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

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
)

// programs runs jobs of kind "p" that write their pids, with that of a child,
// to a file, ignore SIGTERM, and sleep.
func programs(t *testing.T, client *jobq.Client, count int, lostTerminates bool) (*running, []int64, func(id int64) []int) {
	t.Helper()
	folder := t.TempDir()
	script := fmt.Sprintf(`trap "" TERM; sleep 1000 & echo $$ $! > %[1]s/$JOBQ_JOB_ID.new; mv %[1]s/$JOBQ_JOB_ID.new %[1]s/$JOBQ_JOB_ID; wait`, folder)
	w, err := worker.New(client, &worker.Config{
		Lease: 9 * time.Second, Queues: map[string]int{"default": count}, DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	command := shellCommand(script)
	command.LostTerminates = lostTerminates
	require.NoError(t, worker.HandleCommand(w, "p", command))
	ids := make([]int64, count)
	for i := range ids {
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
	for _, id := range ids {
		// Many shims start at once here, and with the race detector each takes its time.
		require.Eventually(t, func() bool { return len(pids(id)) == 2 }, 4*patience, 20*time.Millisecond)
	}
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

// One job of many is taken away by SQL: its programs are dead before its lease
// would have ended by the database's clock, all others run on, and no attempt
// is counted. Whatever the loss means: SIGKILL, or SIGTERM that is ignored.
func TestOneLossOfMany(t *testing.T) {
	t.Parallel()
	for lostTerminates, count := range map[bool]int{false: 64, true: 8} {
		client := newClient(t)
		r, ids, pids := programs(t, client, count, lostTerminates)
		ctx, lost := context.Background(), ids[count/2]
		var leaseEnd time.Time
		require.NoError(t, client.Pool().QueryRow(ctx, `with was as (select lease_expires_at from jobq.running where id = $1 for update)
			update jobq.running r set lease_owner = 'thief', lease_token = r.lease_token + 1, lease_expires_at = now() + interval '1 hour'
			from was where r.id = $1 returning was.lease_expires_at`, lost).Scan(&leaseEnd))
		require.Eventually(t, func() bool { return alive(pids(lost)) == 0 }, patience, 5*time.Millisecond)
		requireBefore(t, client.Pool(), leaseEnd)
		for _, id := range ids {
			if id != lost {
				require.Equal(t, 2, alive(pids(id)))
			}
		}
		var owned, attempts int
		require.NoError(t, client.Pool().QueryRow(ctx, "select count(*) filter (where lease_owner <> 'thief'), sum(attempts) from jobq.running").Scan(&owned, &attempts))
		require.Equal(t, count-1, owned)
		require.Zero(t, attempts)
		require.NoError(t, r.drain())
	}
}

// A database that does not answer any more costs the worker its leases: all
// programs are dead before the first of them ends by the database's clock.
func TestBlackholedDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	proxy := pgtest.StartProxy(t, url)
	client, err := jobq.NewClient(pgtest.Connect(t, proxy.URL), nil)
	require.NoError(t, err)
	direct := pgtest.Connect(t, url)
	r, ids, pids := programs(t, client, 8, false)
	proxy.Swallow()
	left := func() (count int) {
		for _, id := range ids {
			count += alive(pids(id))
		}
		return count
	}
	require.Eventually(t, func() bool { return left() == 0 }, patience, 5*time.Millisecond)
	var leaseEnd time.Time
	require.NoError(t, direct.QueryRow(context.Background(), "select min(lease_expires_at) from jobq.running").Scan(&leaseEnd))
	requireBefore(t, direct, leaseEnd)
	proxy.Heal()
	_ = r.drain()
	var attempts int
	require.NoError(t, direct.QueryRow(context.Background(), "select coalesce(sum(attempts), 0) from jobq.job").Scan(&attempts))
	require.Zero(t, attempts)
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
