package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// openPTY is a terminal with nobody at it: what a program writes to one end can
// be read at the other, each character as it is.
func openPTY(t *testing.T) (outside, inside *os.File) {
	t.Helper()
	outside, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	t.Cleanup(func() { _ = outside.Close() })
	const unlock, number = 0x40045431, 0x80045430 // TIOCSPTLCK, TIOCGPTN of Linux
	var zero, name uint32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, outside.Fd(), unlock, uintptr(unsafe.Pointer(&zero)))
	require.Zero(t, errno)
	_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, outside.Fd(), number, uintptr(unsafe.Pointer(&name)))
	require.Zero(t, errno)
	inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", name), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = inside.Close() })
	return outside, inside
}

// onTerminal runs the command with a terminal for its output and its errors, and
// returns what it has written there.
func onTerminal(t *testing.T, args ...string) (screen string, code int) {
	t.Helper()
	outside, inside := openPTY(t)
	read := make(chan string)
	go func() {
		var content bytes.Buffer
		_, _ = io.Copy(&content, outside) // ends with EIO when the other end is closed
		read <- content.String()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	code = run(ctx, args, strings.NewReader(""), inside, inside)
	require.NoError(t, inside.Close())
	return strings.ReplaceAll(<-read, "\r\n", "\n"), code
}

// What producers write cannot drive a terminal through JSON either, whose value
// stays the same; a file has it as it is.
func TestJSONOnTerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	const evil = "\u009b31mred\u202e\u0085\u2028\x7f"
	id := query[int64](t, pool, "select jobq.enqueue('a', jsonb_build_object('evil', $1::text), unique_key => $1, tags => array[$1])", evil)
	query[int64](t, pool, "select jobq.enqueue('b', queue => $1)", evil)
	commands := [][]string{
		{"show", fmt.Sprint(id), "--json"},
		{"list", "--json"},
		{"list", "-o", "jsonl"},
		{"queues", "list", "--json"},
		{"stats", "--json"},
		{"queues", "pause", evil, "--reason", evil},
		{"queues", "set", evil, "lease=5m"},
		{"audit", "--json"},
		{"janitor", "events", "--json"},
		{"delete", fmt.Sprint(id), "--json"},
	}
	for _, args := range commands {
		args = append(args, "--database-url", url)
		screen, code := onTerminal(t, args...)
		require.Zero(t, code, screen)
		for _, char := range screen {
			require.True(t, char == '\n' || !unicode.IsControl(char) && !unicode.Is(unicode.Bidi_Control, char) && char != '\u2028', "%v wrote %q", args, screen)
		}
		if args[0] == "show" {
			var story struct{ Args map[string]string }
			require.NoError(t, json.Unmarshal([]byte(screen), &story))
			require.Equal(t, evil, story.Args["evil"])
			out, _, _ := invoke(t, "", args...)
			require.Contains(t, out, "\u009b31mred")
		}
	}
}

// /dev/null is a device and no terminal: nobody is asked there, and the UI says
// what works without.
func TestNoTerminal(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	query[int64](t, pool, "select jobq.enqueue('a')")
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	require.NoError(t, err)
	defer func() { _ = null.Close() }()
	require.False(t, isTerminal(null))
	_, inside := openPTY(t)
	require.True(t, isTerminal(inside))
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = read.Close(), write.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, out := range []*os.File{null, write} {
		var errs strings.Builder
		require.Equal(t, exitUsage, run(ctx, []string{"tui", "--database-url", url}, null, out, &errs))
		require.Contains(t, errs.String(), "tui needs a terminal")
	}
	for _, args := range [][]string{{"delete"}, {"cancel"}, {"requeue"}, {"edit", "--priority", "3"}} {
		args = append(args, "--filter", "id:>0", "--database-url", url)
		var errs strings.Builder
		require.Equal(t, exitUsage, run(ctx, args, null, null, &errs)) // nobody to answer
		require.Contains(t, errs.String(), "give --yes")
		errs.Reset()
		require.Equal(t, exitUsage, run(ctx, args, inside, null, &errs)) // nobody who reads the question
		require.Contains(t, errs.String(), "give --yes")
	}
	require.Equal(t, 1, query[int](t, pool, "select count(*)::int from jobq.pending where priority = 0"))
	p := exec.Command(os.Args[0], "edit", "1", "--database-url", url)
	p.Env = append(os.Environ(), asCommand+"=1", "VISUAL=", "EDITOR=")
	said, err := p.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "there is no terminal for it") // vi would wait for ever
}

// One Ctrl-C reaches the command of jobq dev once: the terminal sends it to both, and dev does not send it
// again. A signal for dev alone is passed on.
func TestDevInterrupted(t *testing.T) {
	t.Parallel()
	const script = `trap 'echo interrupted' INT; echo ready; i=0; while [ $i -lt 30 ]; do sleep 0.1; i=$((i+1)); done; exit 5`
	for name, interrupt := range map[string]func(p *process, outside *os.File) error{
		"by the terminal": func(_ *process, outside *os.File) error {
			_, err := outside.Write([]byte{3})
			return err
		},
		"alone": func(p *process, _ *os.File) error { return p.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outside, inside := openPTY(t)
			p := &process{Cmd: exec.Command(os.Args[0], "dev", "--ephemeral", "--", "sh", "-c", script), log: &syncBuffer{}}
			p.Env = append(os.Environ(), asCommand+"=1")
			p.Stdin, p.Stdout, p.Stderr = inside, p.log, p.log
			p.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			require.NoError(t, p.Start())
			t.Cleanup(func() { _ = p.Process.Kill() })
			p.awaitLog(t, "ready")
			require.NoError(t, interrupt(p, outside))
			p.awaitLog(t, "interrupted")
			_ = p.Wait()
			require.Equal(t, exitStatus(5).Error(), exitStatus(p.ProcessState.ExitCode()).Error(), p.log)
			require.Equal(t, 1, strings.Count(p.log.String(), "interrupted"))
		})
	}
}
