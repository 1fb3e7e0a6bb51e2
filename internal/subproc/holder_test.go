package subproc_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// held makes a command whose streams this process, which is outside of the
// program's tree, holds open until the test ends. The program then writes more
// than is read at a time and exits with 5.
func held(t *testing.T) subproc.Command {
	t.Helper()
	command := shell("")
	var holders []*os.File
	t.Cleanup(func() {
		for _, holder := range holders {
			require.NoError(t, holder.Close())
		}
	})
	started := make(chan string, 1)
	ready := make(chan error, 1)
	command.Control = func(message subproc.Message) {
		if message.Stage == "" {
			return
		}
		started <- message.Stage
		for _, descriptor := range []string{"0", "1", "2", "3"} {
			flag := os.O_WRONLY
			if descriptor == "0" {
				flag = os.O_RDONLY
			}
			holder, err := os.OpenFile("/proc/"+message.Stage+"/fd/"+descriptor, flag, 0)
			if err != nil {
				ready <- err
				return
			}
			holders = append(holders, holder)
		}
		ready <- nil
	}
	command.Output = subproc.NewTail(100_000)
	command.Args = []string{"/bin/sh", "-c", `echo '{"stage": "'$$'"}' >&3; until [ "$(ls /proc/$1/fd -l 2>/dev/null | grep -cF "$(readlink /proc/$$/fd/3)")" -ge 2 ]; do sleep 0.01; done
		head -c 60000 /dev/zero | tr '\0' x; printf end; exit 5`, "sh", strconv.Itoa(os.Getpid())}
	command.Stdin = bytes.Repeat([]byte("x"), 1<<20)
	t.Cleanup(func() {
		require.NotEmpty(t, started)
		require.NoError(t, <-ready)
	})
	return command
}

// Somebody outside of the program's tree who holds its streams open holds
// nobody up, and what the program has written is there as a whole.
func TestHolderOutside(t *testing.T) {
	t.Parallel()
	command := held(t)
	result, err := supervisor(t).Run(context.Background(), command)
	require.NoError(t, err)
	requireWhole(t, result)
}

// The end of the context or of the lease ends the wait for such a holder, which
// would else never end here. The program had ended before, and was not stopped.
func TestHolderOutsideIsCut(t *testing.T) {
	t.Parallel()
	for name, byKill := range map[string]bool{"context": false, "kill": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := supervisor(t)
			subproc.WaitForStreams(s, 24*time.Hour)
			result := runHeld(t, s, byKill)
			for result.Stopped { // the end came before that of the program was known
				result = runHeld(t, s, byKill)
			}
			requireWhole(t, result)
		})
	}
}

// runHeld runs a program whose streams are held, and ends the context or the
// lease a little after it has written all.
func runHeld(t *testing.T, s *subproc.Supervisor, byKill bool) subproc.Result {
	t.Helper()
	command := held(t)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	kill := make(chan struct{})
	command.Kill = kill
	go func() {
		for !strings.HasSuffix(string(command.Output.Bytes()), "end") {
			<-time.After(time.Millisecond)
		}
		<-time.After(200 * time.Millisecond) // most of the time, the shim has reported by then
		if byKill {
			close(kill)
		} else {
			cancel(errors.New("timeout"))
		}
	}()
	result, err := s.Run(ctx, command)
	require.NoError(t, err)
	return result
}

func requireWhole(t *testing.T, result subproc.Result) {
	t.Helper()
	require.Equal(t, 5, result.ExitCode)
	require.False(t, result.Stopped)
	require.Equal(t, 60_003, len(result.Output))
	require.True(t, bytes.HasSuffix(result.Output, []byte("end")))
}
