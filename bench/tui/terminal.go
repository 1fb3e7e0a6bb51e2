package main

import (
	"context"
	"fmt"
	"log"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	cells = 120
	// lines is the height that the screens are drawn for, and tall one that
	// shows all probes.
	lines, tall = 35, 100
	session     = "bench"
)

func (b *bench) tmux(args ...string) string {
	out, err := exec.Command("tmux", append([]string{"-S", b.socket}, args...)...).CombinedOutput() // #nosec G204 -- a benchmark
	if err != nil {
		log.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// open starts the UI in a terminal that is there already, and returns when.
func (b *bench) open(ctx context.Context, height int, args ...string) (time.Time, error) {
	b.opened++ // a server of its own each time: the one before may still be ending
	b.socket = fmt.Sprintf("%s/tmux%d", b.folder, b.opened)
	b.tmux(append([]string{
		"-f", "/dev/null", "new-session", "-d", "-s", session, "-x", strconv.Itoa(cells), "-y", strconv.Itoa(height),
		"sh", "-c", `echo ready; read -r _; exec "$@"`, "sh", "env", "TERM=screen-256color", "LC_ALL=C.UTF-8", b.binary, "tui",
	}, args...)...)
	if _, err := b.await(ctx, func(s string) bool { return strings.Contains(s, "ready") }); err != nil {
		return time.Time{}, err
	}
	began := time.Now()
	b.tmux("send-keys", "-t", session, "Enter")
	return began, nil
}

// close ends the terminal, if there is one.
func (b *bench) close() {
	if b.socket == "" {
		return
	}
	_ = exec.Command("tmux", "-S", b.socket, "kill-server").Run() // #nosec G204 -- a benchmark; it has ended already when the UI has
	b.socket = ""
}

// lookEvery leaves the UI and the server the processors: a look is a process.
const lookEvery = 5 * time.Millisecond

// await waits until the screen satisfies, and returns when it did.
func (b *bench) await(ctx context.Context, satisfied func(string) bool) (time.Time, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		if satisfied(b.screen()) {
			return time.Now(), nil
		}
		if err := pause(ctx, lookEvery); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("the screen never came; it is:\n%s", b.screen())
}

func (b *bench) screen() string { return b.tmux("capture-pane", "-p", "-t", session) }

// pause waits, or returns why the context has ended.
func pause(ctx context.Context, span time.Duration) error {
	select {
	case <-time.After(span):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
