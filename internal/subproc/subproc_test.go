package subproc_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
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

// patience ends a test that hangs: no promise is about it.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	subproc.MaybeRunShim()
	if script := os.Getenv(helperVariable); script != "" {
		_, err := new(subproc.Supervisor).Run(context.Background(), shell(script))
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if script := os.Getenv(freezeVariable); script != "" {
		freezeAtEnd(script)
	}
	if os.Getenv(rootVariable) != "" {
		stayAsRoot()
	}
	if os.Getenv(concealedVariable) != "" {
		subproc.Conceal()
	}
	if script := os.Getenv(adopterVariable); script != "" {
		adopt(script)
		return
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
		grace          time.Duration
	}{
		"obeys":   {"trap 'exit 9' TERM; echo ready >&3; while :; do sleep 0.01; done", "", 9, nil, patience},
		"ignores": {"trap '' TERM; echo ready >&3; while :; do sleep 0.01; done", "SIGKILL", -1, nil, 100 * time.Millisecond},
		"kill":    {"trap 'exit 9' TERM; echo ready >&3; while :; do sleep 0.01; done", "SIGKILL", -1, subproc.ErrKill, patience},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(context.Background())
			command := shell(test.script)
			command.Grace = test.grace
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
		result, err := s.Run(ctx, command)
		require.NoError(t, err, "the end of patience has killed it")
		require.True(t, result.Stopped)
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
	require.Eventually(t, func() bool { return len(processesWith(t, mark)) == 0 }, patience, 5*time.Millisecond)
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
	require.Contains(t, environ, "PYTHONUNBUFFERED=1")
	require.NotContains(t, strings.Join(environ, "\n"), "secret")
	environ, err = subproc.Environ(nil, map[string]string{"PYTHONUNBUFFERED": ""})
	require.NoError(t, err)
	require.Contains(t, environ, "PYTHONUNBUFFERED=")
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

// processesWith returns the processes of sleep that have the word as their last argument.
func processesWith(t *testing.T, word string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	require.NotEmpty(t, files, "needs /proc")
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		args := strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
		if err == nil && args[0] == "sleep" && args[len(args)-1] == word {
			found = append(found, filepath.Base(filepath.Dir(file))+" "+strings.Join(args, " "))
		}
	}
	return found
}
