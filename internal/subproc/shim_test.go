package subproc_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// A worker that is killed with SIGKILL takes everything with it.
func TestNothingSurvivesAKilledWorker(t *testing.T) {
	t.Parallel()
	for trial := range 25 {
		mark := uniqueSleep(t)
		ready := filepath.Join(t.TempDir(), "ready")
		worker := exec.Command(os.Args[0])
		worker.Env = append(os.Environ(), helperVariable+"="+fmt.Sprintf(
			"trap '' TERM; sleep %[1]s & (setsid sh -c 'trap \"\" TERM; sleep %[1]s & sleep %[1]s' &); : > %[2]s; sleep %[1]s", mark, ready))
		require.NoError(t, worker.Start())
		require.Eventually(t, func() bool {
			_, err := os.Stat(ready)
			return err == nil && len(processesWith(t, mark)) >= 3+trial%2
		}, patience, time.Millisecond)
		require.NoError(t, worker.Process.Signal(syscall.SIGKILL))
		_ = worker.Wait()
		require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
	}
}

// A shim that somebody kills takes the program with it, and is reported.
func TestKilledShim(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	command := shell("echo '{\"stage\": \"'$PPID'\"}' >&3; sleep " + mark)
	command.Control = func(message subproc.Message) {
		pid, err := strconv.Atoi(message.Stage)
		if err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
}

// A shim that is killed before it could say what it had started, or with
// something running in another session, holds nobody up: what is left of its
// own session is killed, and its open streams are given up.
func TestKilledShimHangsNobody(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	escaped := uniqueSleep(t)
	command := shell(fmt.Sprintf("sleep %s & setsid sleep %s & kill -STOP $PPID; kill -KILL $PPID; sleep 100", mark, escaped))
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
	for _, line := range processesWith(t, escaped) {
		pid, err := strconv.Atoi(strings.Fields(line)[0])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// A shim that has ended, or was killed while it had nothing to do, is replaced;
// one that goes on runs the next program with nothing of the one before.
func TestShimsAreReused(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	parentOf := func() int {
		result, err := s.Run(context.Background(), shell("cd /; umask 0; exec 9>/dev/null; sleep 1000 & echo $PPID"))
		require.NoError(t, err)
		parent, err := strconv.Atoi(strings.TrimSpace(string(result.Output)))
		require.NoError(t, err)
		return parent
	}
	first := parentOf()
	require.Equal(t, first, parentOf())
	result, err := s.Run(context.Background(), shell("ls /proc/self/fd | tr '\\n' ' '; umask; "+siblings+" | wc -l"))
	require.NoError(t, err)
	require.Contains(t, string(result.Output), "0 1 2 3 4 ") // 4 is the folder that ls reads
	require.NotContains(t, string(result.Output), "5 ")
	require.NotContains(t, string(result.Output), "0000")
	require.True(t, strings.HasSuffix(string(result.Output), "\n1\n"), string(result.Output))

	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool { // until the line has broken, the kill may come too late for a run
		result, err := s.Run(context.Background(), shell("echo $PPID"))
		return err == nil && strings.TrimSpace(string(result.Output)) != strconv.Itoa(first)
	}, patience, time.Millisecond)
}

// A deadline that is extended lets a program run; one that is not kills it,
// whatever this process does, and the next program has its own.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	_, err := s.Run(context.Background(), shell(":")) // so that a shim is there, and the next starts soon
	require.NoError(t, err)
	first := sinceBoot(t) + 8*time.Second
	command := shell(fmt.Sprintf(`trap '' TERM; until [ "$(cut -d. -f1 /proc/uptime)" -gt %d ]; do sleep 0.1; done; echo done`, first/time.Second))
	command.DeadlineEvery = 10 * time.Millisecond
	deadlines := []time.Duration{first, first + time.Hour} // the program sees the end of the first
	command.Deadline = func() time.Duration {
		deadline := deadlines[0]
		deadlines = deadlines[len(deadlines)-1:]
		return deadline
	}
	result, err := s.Run(context.Background(), command)
	require.NoError(t, err)
	require.Equal(t, "done\n", string(result.Output))
	require.False(t, result.Expired)

	last := sinceBoot(t) + 300*time.Millisecond
	command = shell("trap '' TERM; sleep 1000 & sleep 1000")
	command.DeadlineEvery = 10 * time.Millisecond
	command.Deadline = func() time.Duration { return last }
	result, err = s.Run(context.Background(), command)
	require.NoError(t, err)
	require.True(t, result.Expired)
	require.Equal(t, "SIGKILL", result.Signal)

	command = shell("sleep 0.3")
	result, err = s.Run(context.Background(), command)
	require.NoError(t, err)
	require.False(t, result.Expired)
	require.Zero(t, result.ExitCode)
}

// A shim that does not even kill, because somebody has stopped it, is killed
// in time, and the program with it.
func TestStoppedShim(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	kill := make(chan struct{})
	command := shell("kill -STOP $PPID; echo '{\"stage\": \"stopped\"}' >&3; sleep " + mark)
	command.Kill = kill
	command.Control = func(subproc.Message) { close(kill) }
	command.DeadlineEvery = 10 * time.Millisecond
	deadline := sinceBoot(t) + time.Second
	command.Deadline = func() time.Duration { return deadline }
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
	require.LessOrEqual(t, subproc.PatienceBefore(5*time.Second), 5*time.Second)
	require.Equal(t, 10*time.Second, subproc.PatienceBefore(time.Hour))
	require.Equal(t, 250*time.Millisecond, subproc.PatienceBefore(-time.Second))
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
}

// A stopped shim that does not read any more, until the line to it is full, keeps
// nobody from killing its program.
func TestStoppedShimFullLine(t *testing.T) {
	t.Parallel()
	kill, asked := make(chan struct{}), 0
	command := shell("kill -STOP $PPID; sleep 1000")
	command.Kill = kill
	command.DeadlineEvery = 100 * time.Microsecond
	command.Deadline = func() time.Duration { // another each time: each is an order
		if asked++; asked == 2000 {
			close(kill)
		}
		return sinceBoot(t) + time.Hour + time.Duration(asked)
	}
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
}

// sinceBoot reads the clock that deadlines are kept in.
func sinceBoot(t *testing.T) time.Duration {
	t.Helper()
	content, err := os.ReadFile("/proc/uptime") // CLOCK_BOOTTIME, to a hundredth of a second
	require.NoError(t, err)
	seconds, err := strconv.ParseFloat(strings.Fields(string(content))[0], 64)
	require.NoError(t, err)
	return time.Duration(seconds * float64(time.Second))
}

// siblings is a command that writes a line for each child of the shim, which begins with its state. Not all machines have ps.
const siblings = `cat /proc/[0-9]*/stat 2> /dev/null | sed 's/.*) //' | awk -v shim=$PPID '$2 == shim'`

// Children that end before the program do not gather as zombies.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	result := run(t, shell(`
		for i in 1 2 3 4 5 6 7 8; do (sh -c : &); done
		i=0; while `+siblings+` | grep -q ^Z && [ $i -lt 500 ]; do i=$((i+1)); sleep 0.01; done
		`+siblings+` | grep -c ^Z`))
	require.Equal(t, "0\n", string(result.Output))
}

// A deadline that is given while the program is being started counts, also if
// nothing is said of it again.
func TestArmedAtTheStart(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	for range 5 { // by a shim that is being started itself, and by one that has been idle
		var deadline atomic.Int64
		command := shell("trap '' TERM; sleep 1000")
		command.DeadlineEvery = time.Hour
		command.Deadline = func() time.Duration { return time.Duration(deadline.Load()) }
		command.Talk = func(program subproc.Conversation) {
			deadline.Store(int64(sinceBoot(t) + 300*time.Millisecond))
			program.Arm()
			_, _ = io.Copy(io.Discard, program.Stdout)
		}
		result, err := s.Run(context.Background(), command)
		require.NoError(t, err)
		require.True(t, result.Expired)
	}
}
