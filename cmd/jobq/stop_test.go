package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// A worker that is killed with SIGKILL loses its jobs to the other once their
// leases have ended, with one attempt counted, and its programs die with it.
// Method: the leases are longer than a busy machine makes the other worker
// late, and the test ends those of the dead one.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	script := fmt.Sprintf(`task=sh -c 'echo $$ > %s/$JOBQ_JOB_ID.$JOBQ_ATTEMPT; [ $JOBQ_ATTEMPT = 2 ] || exec sleep 1000'`, folder)
	args := []string{"worker", "--database-url", url, "--lease", "5m", "--scan", "500ms", "--run", script, "-q", "default=2"}
	victim := startProcess(t, args...)
	victim.awaitLog(t, "worker started")
	ids := []int64{query[int64](t, pool, "select jobq.enqueue('task')"), query[int64](t, pool, "select jobq.enqueue('task')")}
	eventually(t, pool, 2, "select count(*) from jobq.job where lease_owner like '%-' || $1::text || '-%'", fmt.Sprint(victim.Process.Pid))
	var programs []string
	for _, id := range ids {
		require.Eventually(t, func() bool {
			content, err := os.ReadFile(fmt.Sprintf("%s/%d.1", folder, id))
			if err != nil || len(content) == 0 {
				return false
			}
			programs = append(programs, strings.TrimSpace(string(content)))
			return true
		}, patience, 5*time.Millisecond)
	}
	survivor := startProcess(t, args...)
	survivor.awaitLog(t, "worker started")
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait()
	for _, pid := range programs {
		awaitDeath(t, pid)
	}
	require.NoError(t, pgtest.ExpireLeases(context.Background(), pool))
	for _, id := range ids {
		eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", id)
		require.Equal(t, 1, query[int](t, pool, "select attempts from jobq.job where id = $1 and crashes = 1", id))
	}
}

// awaitDeath waits until there is no such process.
func awaitDeath(t *testing.T, pid string) {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(pid))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(number, 0) != nil }, patience, 5*time.Millisecond, "process %s lives", pid)
}

// A worker that is stopped past its lease, and goes on afterwards, is not
// believed: the job is the other's, and completes once.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	// The first run ends when the test says so, which is while the second runs.
	script := fmt.Sprintf(`task=sh -c 'echo $$ > %[1]s/pid.$JOBQ_ATTEMPT; touch %[1]s/begun.$JOBQ_ATTEMPT; while [ ! -e %[1]s/end.$JOBQ_ATTEMPT ]; do sleep 0.01; done; echo "{\"result\": $JOBQ_ATTEMPT}" >&3'`, folder)
	args := []string{"worker", "--database-url", url, "--scan", "500ms", "--run", script, "--log-level", "debug"}
	stopped := startProcess(t, append(args, "--lease", "12s")...)
	stopped.awaitLog(t, "worker started")
	id := query[int64](t, pool, "select jobq.enqueue('task')")
	awaitFile(t, folder+"/begun.1")
	first := query[int64](t, pool, "select lease_token from jobq.job where id = $1", id)
	require.NoError(t, stopped.Process.Signal(syscall.SIGSTOP))
	_, stderr, code := invoke(t, "", "queues", "set", "default", "lease=5m", "--database-url", url) // the other's lease is not to end
	require.Zero(t, code, stderr)
	startProcess(t, args...)
	awaitFile(t, folder+"/begun.2")
	written, err := os.ReadFile(folder + "/pid.1")
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(written)))
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the first program is dead before the second begins, though its worker sleeps")
	require.NoError(t, os.WriteFile(folder+"/end.1", nil, 0o600)) // the program ends, its worker sleeps
	require.NoError(t, stopped.Process.Signal(syscall.SIGCONT))
	stopped.awaitLog(t, "lease lost")
	require.Equal(t, "running", query[string](t, pool, "select state::text from jobq.job where id = $1", id))
	require.Greater(t, query[int64](t, pool, "select lease_token from jobq.job where id = $1", id), first)
	require.NoError(t, os.WriteFile(folder+"/end.2", nil, 0o600))
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", id)
	require.Equal(t, "2", query[string](t, pool, "select result::text from jobq.job where id = $1", id))
	require.Equal(t, 1, query[int](t, pool, "select attempts from jobq.job where id = $1", id))
}

// A kept process is given its deadline with its job: a worker that is stopped as
// soon as the job has begun leaves nothing that runs past the lease. Method: a
// long lease, of which a sixth is there for a busy machine to be late.
func TestStoppedWorkerOfKeptProcess(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	begun := t.TempDir() + "/begun"
	script := fmt.Sprintf(`task=sh -c 'read job; echo "{\"id\": 1, \"done\": true}"; read job; echo $$ > %[1]s.new; mv %[1]s.new %[1]s; sleep 1000'`, begun)
	w := startProcess(t, "worker", "--database-url", url, "--lease", "18s", "--run-stream", script, "--log-level", "debug")
	w.awaitLog(t, "worker started")
	require.Equal(t, int64(1), query[int64](t, pool, "select jobq.enqueue('task')"))
	eventually(t, pool, "completed", "select state::text from jobq.job where id = $1", int64(1))
	second := query[int64](t, pool, "select jobq.enqueue('task', run_at => now() + interval '500 ms')") // the process is idle before
	awaitFile(t, begun)
	require.NoError(t, w.Process.Signal(syscall.SIGSTOP))
	expires := query[time.Time](t, pool, "select lease_expires_at from jobq.job where id = $1", second)
	pid, err := os.ReadFile(begun)
	require.NoError(t, err)
	awaitDeath(t, string(pid))
	require.Less(t, query[time.Time](t, pool, "select clock_timestamp()"), expires, "dead before another worker may have the job")
	require.NoError(t, w.Process.Signal(syscall.SIGCONT))
	w.awaitLog(t, "lease lost")
}

func awaitFile(t *testing.T, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(name)
		return err == nil
	}, patience, 5*time.Millisecond, "no %s", name)
}

// The first signal drains, the second does not wait; neither uses an attempt. What comes twice within a
// second, as a terminal's Ctrl-C and timeout(1) do, came once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	w := startProcess(t, "worker", "--database-url", url, "--run", "task=sleep 1000", "--drain-timeout", "1h")
	w.awaitLog(t, "worker started")
	id := query[int64](t, pool, "select jobq.enqueue('task')")
	eventually(t, pool, "running", "select state::text from jobq.job where id = $1", id)
	ended := make(chan error, 1)
	go func() { ended <- w.Wait() }()
	first := time.Now()
	require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	w.awaitLog(t, "worker drains")
	require.Equal(t, "running", query[string](t, pool, "select state::text from jobq.job where id = $1", id))
	require.Eventually(t, func() bool {
		_ = w.Process.Signal(syscall.SIGTERM) // ended: fine
		return len(ended) > 0
	}, patience, 20*time.Millisecond)
	require.NoError(t, <-ended)
	require.GreaterOrEqual(t, time.Since(first), sameSignal)
	require.Equal(t, "available", query[string](t, pool, "select state::text from jobq.job where id = $1", id))
	require.Zero(t, query[int](t, pool, "select attempts from jobq.job where id = $1", id))
}

// SIGUSR1 takes no new work, and what runs ends in its own time.
func TestFinishSignal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	folder := t.TempDir()
	w := startProcess(t, "worker", "--database-url", url, "-q", "default=1", "--drain-timeout", "1ms",
		"--run", fmt.Sprintf("task=sh -c 'touch %[1]s/begun; until [ -e %[1]s/go ]; do sleep 0.01; done'", folder))
	first, second := query[int64](t, pool, "select jobq.enqueue('task')"), query[int64](t, pool, "select jobq.enqueue('task')")
	awaitFile(t, folder+"/begun")
	require.NoError(t, w.Process.Signal(syscall.SIGUSR1))
	w.awaitLog(t, "takes no new work")
	require.NoError(t, os.WriteFile(folder+"/go", nil, 0o600))
	require.NoError(t, w.Wait())
	require.Equal(t, "completed", query[string](t, pool, "select state::text from jobq.job where id = $1", first))
	require.Equal(t, "available", query[string](t, pool, "select state::text from jobq.job where id = $1", second))
}

// What the environment of a worker's process holds is closed to programs of its user from its start on.
func TestProcessIsConcealed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can run the worker as another user, and root reads all")
	}
	nobody := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	worker := exec.Command("/proc/self/exe", "worker", "--database-url", "postgres://127.0.0.1:1/x", "--run", "k=true")
	worker.Env, worker.Dir, worker.SysProcAttr = append(os.Environ(), asCommand+"=1", "PGPASSWORD=secret"), "/", nobody
	require.NoError(t, worker.Start())
	t.Cleanup(func() {
		_ = worker.Process.Kill()
		_ = worker.Wait()
	})
	require.Eventually(t, func() bool {
		reads := exec.Command("cat", fmt.Sprintf("/proc/%d/environ", worker.Process.Pid))
		reads.SysProcAttr = nobody
		output, err := reads.CombinedOutput()
		return err != nil && strings.Contains(string(output), "Permission denied")
	}, patience, 10*time.Millisecond)
}
