package subproc_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// family is a script of a program whose processes sleep: itself, a child, and one in a session of its own.
// They ignore SIGTERM.
func family(mark string) string {
	return fmt.Sprintf(`trap '' TERM; (setsid sh -c 'trap "" TERM; sleep %[1]s' &); sleep %[1]s & sleep %[1]s & wait`, mark)
}

const familySize = 3

// statesOf are the states of the processes of sleep with the mark, as /proc has them: "T" is stopped.
func statesOf(t *testing.T, mark string) string {
	t.Helper()
	var states strings.Builder
	for _, found := range processesWith(t, mark) {
		pid, _, _ := strings.Cut(found, " ")
		content, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err == nil {
			states.WriteByte(content[bytes.LastIndexByte(content, ')')+2])
		}
	}
	return states.String()
}

func awaitStates(t *testing.T, mark, states string) {
	t.Helper()
	require.Eventually(t, func() bool { return statesOf(t, mark) == states }, patience, time.Millisecond)
}

// freezer runs a family that freezes and goes on as the test says.
type freezer struct {
	*subproc.Supervisor
	mayRun atomic.Bool
	renew  chan struct{}
	kill   chan struct{}
	cancel context.CancelFunc
	ended  chan subproc.Result
}

// startFrozen returns when the family is frozen. Its grace is an hour.
func startFrozen(t *testing.T, mark string) *freezer {
	t.Helper()
	f := &freezer{Supervisor: supervisor(t), renew: make(chan struct{}, 1), kill: make(chan struct{}), ended: make(chan subproc.Result, 1)}
	far := sinceBoot(t) + time.Hour
	command := shell(family(mark))
	command.Freezes, command.Renew, command.Kill, command.DeadlineEvery, command.Grace = true, f.renew, f.kill, time.Hour, time.Hour
	command.Deadline = func() time.Duration {
		if f.mayRun.Load() {
			return far
		}
		return 1
	}
	f.mayRun.Store(true)
	var ctx context.Context
	ctx, f.cancel = context.WithCancel(context.Background())
	t.Cleanup(f.cancel)
	go func() {
		result, _ := f.Run(ctx, command)
		f.ended <- result
	}()
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == familySize }, patience, time.Millisecond)
	f.set(false)
	awaitStates(t, mark, "TTT")
	return f
}

func (f *freezer) set(mayRun bool) {
	f.mayRun.Store(mayRun)
	f.renew <- struct{}{}
}

// At its deadline all processes of the program are stopped, also those in other sessions, and it has not
// ended. With a later deadline they go on.
func TestFreeze(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	f := startFrozen(t, mark)
	require.Empty(t, f.ended)
	f.set(true)
	awaitStates(t, mark, "SSS")
	require.Empty(t, f.ended)
	f.set(false)
	awaitStates(t, mark, "TTT")
	close(f.kill)
	result := <-f.ended
	require.Equal(t, "SIGKILL", result.Signal)
	require.True(t, result.Stopped)
	require.False(t, result.Expired)
	require.Empty(t, processesWith(t, mark))
	require.Equal(t, 10*time.Second, subproc.PatienceWhenFrozen(), "its shim may take its time")
}

// SIGTERM cannot reach a frozen program before it goes on, so it is killed. The next program of its shim runs.
func TestFrozenIsNotAsked(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	f := startFrozen(t, mark)
	f.cancel()
	require.Equal(t, "SIGKILL", (<-f.ended).Signal)
	require.Empty(t, processesWith(t, mark))
	result, err := f.Run(context.Background(), shell("echo next"))
	require.NoError(t, err)
	require.Equal(t, "next\n", string(result.Output))
}

// A frozen program does not outlive its worker, which is killed with SIGKILL.
func TestFrozenDiesWithItsWorker(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), freezeVariable+"="+family(mark))
	stdin, err := worker.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, worker.Start())
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == familySize }, patience, time.Millisecond)
	require.NoError(t, stdin.Close()) // freeze now
	awaitStates(t, mark, "TTT")
	require.NoError(t, worker.Process.Signal(syscall.SIGKILL))
	_ = worker.Wait()
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
}

// freezeVariable makes the test binary a worker that freezes its program when its standard input ends.
const freezeVariable = "JOBQ_TEST_FREEZE"

func freezeAtEnd(script string) {
	isFrozen := new(atomic.Bool)
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // its end
		isFrozen.Store(true)
	}()
	command := shell(script)
	command.Freezes, command.DeadlineEvery = true, time.Millisecond
	command.Deadline = func() time.Duration {
		if isFrozen.Load() {
			return 1
		}
		return 0
	}
	_, err := new(subproc.Supervisor).Run(context.Background(), command)
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
