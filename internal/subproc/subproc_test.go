package subproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// helperVariable makes the test binary a worker that runs one command, to be
// killed by a test.
const helperVariable = "JOBQ_TEST_RUN"

func TestMain(m *testing.M) {
	subproc.MaybeRunShim()
	if script := os.Getenv(helperVariable); script != "" {
		_, err := new(subproc.Supervisor).Run(context.Background(), shell(script))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if mark := os.Getenv(busyVariable); mark != "" {
		beBusy(mark)
	}
	goleak.VerifyTestMain(m)
}

func shell(script string) subproc.Command {
	return subproc.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}}
}

// supervisor is one for a test. Its shims have ended when the test has.
func supervisor(t *testing.T) *subproc.Supervisor {
	t.Helper()
	var s subproc.Supervisor
	t.Cleanup(s.Close)
	return &s
}

func run(t *testing.T, command subproc.Command) subproc.Result {
	t.Helper()
	result, err := supervisor(t).Run(context.Background(), command)
	require.NoError(t, err)
	return result
}

// Exit codes, signals, input and both outputs come through as they are.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	command := shell("cat; echo problem >&2; exit 3")
	command.Stdin = []byte(`{"a": 1}`)
	result := run(t, command)
	require.Equal(t, 3, result.ExitCode)
	require.Contains(t, string(result.Output), `{"a": 1}`)
	require.Equal(t, "problem\n", string(result.Stderr))
	require.Positive(t, result.MaxRSSBytes)

	result = run(t, shell("kill -SEGV $$"))
	require.Equal(t, "SIGSEGV", result.Signal)
	require.Equal(t, -1, result.ExitCode)
	require.False(t, result.Stopped)

	result = run(t, subproc.Command{Args: []string{"/bin/sh", "-c", "exit 0"}})
	require.Zero(t, result.ExitCode)
}

// A program that cannot be started says why.
func TestCannotStart(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("text"), 0o600))
	for want, command := range map[string]subproc.Command{
		"no such file":      {Args: []string{"/does/not/exist"}},
		"not found":         {Args: []string{"jobq-no-such-program"}, Env: []string{"PATH=/bin"}},
		"permission denied": {Args: []string{plain}},
		"chdir":             {Args: []string{"/bin/true"}, Dir: "/does/not/exist"},
		"empty":             {},
	} {
		_, err := supervisor(t).Run(context.Background(), command)
		require.ErrorContains(t, err, want)
	}
}

// A megabyte of input that nobody reads hangs nobody.
func TestInputNotRead(t *testing.T) {
	t.Parallel()
	command := shell("exec 0<&-; exit 4")
	command.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	require.Equal(t, 4, run(t, command).ExitCode)
}

// A flood of output leaves its end, in bounded memory, also without a newline.
func TestFlood(t *testing.T) {
	t.Parallel()
	for _, script := range []string{
		"head -c 100000000 /dev/zero | tr '\\0' x; printf end",
		"i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i of very many; done; printf end",
	} {
		result := run(t, shell(script))
		require.Zero(t, result.ExitCode)
		require.LessOrEqual(t, len(result.Output), 64<<10)
		require.True(t, bytes.HasSuffix(result.Output, []byte("end")))
	}
}

// The end of the context means SIGTERM first, which the program may obey, and
// SIGKILL after the grace; with ErrKill it means SIGKILL.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script, signal string
		code           int
		cause          error
	}{
		"obeys":   {"trap 'exit 9' TERM; echo ready >&3; while :; do sleep 0.01; done", "", 9, nil},
		"ignores": {"trap '' TERM; echo ready >&3; while :; do sleep 0.01; done", "SIGKILL", -1, nil},
		"kill":    {"trap 'exit 9' TERM; echo ready >&3; while :; do sleep 0.01; done", "SIGKILL", -1, subproc.ErrKill},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(context.Background())
			command := shell(test.script)
			command.Grace = 300 * time.Millisecond
			command.ControlError = func(error) { cancel(test.cause) } // "ready" is no message, and a good signal
			result, err := supervisor(t).Run(ctx, command)
			require.NoError(t, err)
			require.True(t, result.Stopped)
			require.Equal(t, test.signal, result.Signal)
			require.Equal(t, test.code, result.ExitCode)
		})
	}
}

// What a program leaves running, in its group, in another session or with two
// forks, ends with it and does not hold up the result.
func TestChildrenEndWithTheProgram(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	run(t, shell(fmt.Sprintf("sleep %[1]s & setsid sleep %[1]s & (setsid sh -c 'sleep %[1]s & sleep %[1]s' &) ; exit 0", mark)))
	require.Empty(t, processesWith(t, mark))
}

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
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, worker.Process.Signal(syscall.SIGKILL))
		_ = worker.Wait()
		require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, 20*time.Second, 5*time.Millisecond)
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
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, 20*time.Second, 5*time.Millisecond)
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
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, 20*time.Second, 5*time.Millisecond)
	for _, line := range processesWith(t, escaped) {
		pid, err := strconv.Atoi(strings.Fields(line)[0])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
}

// Lines on descriptor 3 arrive as messages; garbage, half lines and endless
// ones are complaints, and hurt nothing.
func TestControl(t *testing.T) {
	t.Parallel()
	var messages []subproc.Message
	var problems []error
	command := shell(`
		echo '{"progress": 40, "stage": "resize", "message": "img"}' >&3
		echo '{"checkpoint": {"at": 7}}' >&3
		echo 'garbage' >&3
		echo '{"progres": 1}' >&3
		head -c 3000000 /dev/zero | tr '\0' 'x' >&3
		echo >&3
		echo '{"snooze": "10m"}' >&3
		echo '{"cancel": "why"}' >&3
		printf '{"result": [1' >&3`)
	command.Control = func(message subproc.Message) { messages = append(messages, message) }
	command.ControlError = func(err error) { problems = append(problems, err) }
	require.Zero(t, run(t, command).ExitCode)
	require.Len(t, messages, 4)
	require.InDelta(t, 40, *messages[0].Progress, 0)
	require.Equal(t, "resize", messages[0].Stage)
	require.JSONEq(t, `{"at": 7}`, string(messages[1].Checkpoint))
	require.Equal(t, 10*time.Minute, *messages[2].Snooze)
	require.Equal(t, "why", *messages[3].Cancel)
	require.Len(t, problems, 4)
	require.ErrorContains(t, problems[2], "longer than")
}

// An end that comes while the program is being started is not lost.
func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	for i := range 200 {
		ctx, cancel := context.WithCancelCause(context.Background())
		command := shell("trap '' TERM; sleep 1000")
		command.Grace = time.Millisecond
		kill := make(chan struct{})
		command.Kill = kill
		switch i % 3 {
		case 0:
			cancel(subproc.ErrKill)
		case 1:
			cancel(nil)
		case 2:
			close(kill)
		}
		begun := time.Now()
		result, err := s.Run(ctx, command)
		require.NoError(t, err)
		require.True(t, result.Stopped)
		require.Less(t, time.Since(begun), 8*time.Second, "it was not the end of patience that killed it")
		cancel(nil)
	}
}

// Many programs at once: ending one of them leaves the others alone.
func TestOneOfMany(t *testing.T) {
	t.Parallel()
	const count = 32
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	var running sync.WaitGroup
	s := supervisor(t)
	results := make([]subproc.Result, count)
	failures := make([]error, count)
	for i := range count {
		running.Go(func() {
			jobCtx, script := context.Background(), "sleep 0.3; exit 7"
			if i == count/2 {
				jobCtx, script = ctx, "echo ready >&3; sleep 100"
			}
			command := shell(script)
			command.ControlError = func(error) { cancel(subproc.ErrKill) }
			results[i], failures[i] = s.Run(jobCtx, command)
		})
	}
	running.Wait()
	require.NoError(t, errors.Join(failures...))
	for i, result := range results {
		if i == count/2 {
			require.Equal(t, "SIGKILL", result.Signal)
			continue
		}
		require.Equal(t, 7, result.ExitCode)
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
	result, err := s.Run(context.Background(), shell("ls /proc/self/fd | tr '\\n' ' '; umask; ps --no-headers --ppid $PPID | wc -l"))
	require.NoError(t, err)
	require.Contains(t, string(result.Output), "0 1 2 3 4 ") // 4 is the folder that ls reads
	require.NotContains(t, string(result.Output), "5 ")
	require.NotContains(t, string(result.Output), "0000")
	require.True(t, strings.HasSuffix(string(result.Output), "\n1\n"), string(result.Output))

	require.NoError(t, syscall.Kill(first, syscall.SIGKILL))
	require.Eventually(t, func() bool { // until the line has broken, the kill may come too late for a run
		result, err := s.Run(context.Background(), shell("echo $PPID"))
		return err == nil && strings.TrimSpace(string(result.Output)) != strconv.Itoa(first)
	}, 20*time.Second, time.Millisecond)
}

// A deadline that is extended lets a program run; one that is not kills it,
// whatever this process does, and the next program has its own.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	begun := time.Now()
	command := shell("trap '' TERM; sleep 0.5; echo done")
	command.DeadlineEvery = 10 * time.Millisecond
	command.Deadline = func() time.Duration { return sinceBoot(t) + 200*time.Millisecond }
	result, err := s.Run(context.Background(), command)
	require.NoError(t, err)
	require.Equal(t, "done\n", string(result.Output))
	require.False(t, result.Expired)

	last := sinceBoot(t) + 300*time.Millisecond
	command.Args[2] = "trap '' TERM; sleep 1000 & sleep 1000"
	command.Deadline = func() time.Duration { return last }
	result, err = s.Run(context.Background(), command)
	require.NoError(t, err)
	require.True(t, result.Expired)
	require.Equal(t, "SIGKILL", result.Signal)
	require.Less(t, time.Since(begun), 20*time.Second)

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
	deadline := sinceBoot(t) + 5*time.Second
	command.Deadline = func() time.Duration { return deadline }
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
	require.Less(t, sinceBoot(t), deadline+4*time.Second, "not the patience of ten seconds")
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, 20*time.Second, 5*time.Millisecond)
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

// Children that end before the program do not gather as zombies.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	result := run(t, shell(`
		for i in 1 2 3 4 5 6 7 8; do (sh -c : &); done
		i=0; while ps --no-headers -o stat --ppid $PPID | grep -q Z && [ $i -lt 500 ]; do i=$((i+1)); sleep 0.01; done
		ps --no-headers -o stat --ppid $PPID | grep -c Z`))
	require.Equal(t, "0\n", string(result.Output))
}

// Limits, niceness and the user are the program's, and not the next one's.
func TestAttributes(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	command := shell("ulimit -n; ulimit -v; ulimit -t; nice; id -u; id -g; id -G; kill -TERM $$")
	command.Attributes = &subproc.Attributes{Nice: 15, Limits: map[string]uint64{"open_files": 50, "address_space": 1 << 30, "cpu_seconds": 9}}
	want := fmt.Sprintf("50\n1048576\n9\n15\n%d\n%d\n", os.Getuid(), os.Getgid())
	if os.Getuid() == 0 {
		id := uint32(65534)
		command.Attributes.UID, command.Attributes.GID = &id, &id
		want = "50\n1048576\n9\n15\n65534\n65534\n65534\n"
	}
	result, err := s.Run(context.Background(), command)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(result.Output), want), string(result.Output))
	require.Equal(t, "SIGTERM", result.Signal)

	result, err = s.Run(context.Background(), shell("ulimit -n; nice"))
	require.NoError(t, err)
	require.NotContains(t, string(result.Output), "50\n")
	require.NotContains(t, string(result.Output), "15\n")

	if os.Getuid() == 0 { // a folder that is closed to nobody
		command.Args = []string{filepath.Join(t.TempDir(), "program")}
		require.NoError(t, os.WriteFile(command.Args[0], []byte("#!/bin/sh\n"), 0o700))
		_, err = s.Run(context.Background(), command)
		require.ErrorContains(t, err, "permission denied")
	}
	command.Args = []string{"/does/not/exist"}
	_, err = s.Run(context.Background(), command)
	require.ErrorContains(t, err, "no such file")
	command.Attributes = &subproc.Attributes{Limits: map[string]uint64{"patience": 1}}
	_, err = s.Run(context.Background(), command)
	require.ErrorContains(t, err, "patience")
	id := uint32(os.Getuid())
	command.Attributes = &subproc.Attributes{UID: &id}
	_, err = s.Run(context.Background(), command)
	require.ErrorContains(t, err, "a user without a group")
}

// A program that runs as another user dies with its worker like any other.
func TestOtherUserDiesWithShim(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Log("only root can run programs as somebody else")
		return
	}
	mark := uniqueSleep(t)
	id := uint32(65534)
	command := shell("echo '{\"stage\": \"'$PPID'\"}' >&3; exec sleep " + mark)
	command.Attributes = &subproc.Attributes{UID: &id, GID: &id}
	command.Control = func(message subproc.Message) {
		pid, err := strconv.Atoi(message.Stage)
		if err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_, err := supervisor(t).Run(context.Background(), command)
	require.ErrorContains(t, err, "supervisor was killed")
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, 20*time.Second, 5*time.Millisecond)
}

// The environment has what is named and nothing that leads to the database.
func TestEnviron(t *testing.T) {
	t.Setenv("DATABASE_URL", "secret")
	t.Setenv("PGPASSWORD", "secret")
	t.Setenv("WANTED", "yes")
	environ, err := subproc.Environ([]string{"WANTED", "NOT_SET"}, map[string]string{"JOBQ_JOB_ID": "7", "HOME": "/override"})
	require.NoError(t, err)
	require.Contains(t, environ, "WANTED=yes")
	require.Contains(t, environ, "JOBQ_JOB_ID=7")
	require.Contains(t, environ, "HOME=/override")
	require.NotContains(t, strings.Join(environ, "\n"), "secret")
	_, err = subproc.Environ(nil, map[string]string{"A": "x\x00y"})
	require.ErrorContains(t, err, "NUL")
}

// Words are cut as a shell cuts them, and nothing is expanded.
func TestSplit(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][]string{
		``:                       nil,
		`cat`:                    {"cat"},
		`  a  b	c `:              {"a", "b", "c"},
		`sh -c 'echo "$HOME" *'`: {"sh", "-c", `echo "$HOME" *`},
		`a"b c"d ''`:             {"ab cd", ""},
		`"a\"b" c\ d '\' "\x"`:   {`a"b`, "c d", `\`, `\x`},
	} {
		words, err := subproc.Split(line)
		require.NoError(t, err, line)
		require.Equal(t, want, words, line)
	}
	for _, line := range []string{`a 'b`, `"`, `a\`} {
		_, err := subproc.Split(line)
		require.Error(t, err, line)
	}
}

// Neither parser may panic, whatever it is given.
func FuzzParsers(f *testing.F) {
	f.Add(`sh -c 'x "y"' \z`, []byte(`{"progress": 4e1, "snooze": "1s"}`))
	f.Fuzz(func(t *testing.T, line string, message []byte) {
		words, err := subproc.Split(line)
		if err == nil && strings.TrimSpace(line) == "" {
			require.Empty(t, words)
		}
		_, _ = subproc.ParseMessage(message)
		_, _ = subproc.ParseReply(message)
	})
}

var sleeps struct {
	sync.Mutex
	count int
}

// uniqueSleep is an argument for sleep that no other process has.
func uniqueSleep(t *testing.T) string {
	t.Helper()
	sleeps.Lock()
	defer sleeps.Unlock()
	sleeps.count++
	return fmt.Sprintf("%d.%d", 1000+sleeps.count, os.Getpid())
}

// processesWith returns the processes that have the word among their arguments.
func processesWith(t *testing.T, word string) []string {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid,stat,args").Output()
	require.NoError(t, err)
	var found []string
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[len(fields)-1] == word && fields[2] == "sleep" {
			found = append(found, line)
		}
	}
	return found
}
