package crashtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// stopTimeout is how long the worker may take to end when it is told to.
	stopTimeout = time.Minute
	// groupTimeout is how long the kernel may take to end what was killed.
	groupTimeout = 10 * time.Second
	// logShown is how much of the end of the worker's output an error shows.
	logShown = 2000
)

// workerProcess is the user's worker, with all that is in its process group.
type workerProcess struct {
	command []string
	env     []string
	logPath string // "" for a temporary file
	log     *os.File
	process *exec.Cmd     // nil when it does not run
	exited  chan struct{} // closed when it has ended
	result  error         // of its end; read after exited is closed
}

// start starts the worker in a process group of its own. kill, stop and end end it, and
// the end of the context does not.
func (w *workerProcess) start(ctx context.Context) error {
	if w.log == nil {
		if err := w.openLog(); err != nil {
			return fmt.Errorf("log of the worker: %w", err)
		}
	}
	process := exec.CommandContext(context.WithoutCancel(ctx), w.command[0], w.command[1:]...) // #nosec G204 -- the user's own command
	process.Env = append(os.Environ(), w.env...)
	process.Stdout, process.Stderr = w.log, w.log
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	exited := make(chan struct{})
	w.process, w.exited = process, exited
	go func() {
		w.result = process.Wait()
		close(exited)
	}()
	return nil
}

func (w *workerProcess) openLog() (err error) {
	if w.logPath == "" {
		w.log, err = os.CreateTemp("", "jobq-crash-test-*.log")
		return err
	}
	w.log, err = os.OpenFile(w.logPath, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600) // #nosec G304 -- named by the user
	return err
}

// check is an error if the worker has ended by itself.
func (w *workerProcess) check() error {
	select {
	case <-w.exited:
		state := "exit status 0"
		if w.result != nil {
			state = w.result.Error()
		}
		return w.withLog(fmt.Errorf("the worker has ended by itself: %s", state))
	default:
		return nil
	}
}

// kill ends the process group at once, and returns when the kernel has ended it.
func (w *workerProcess) kill(ctx context.Context) error {
	if err := w.check(); err != nil {
		return err
	}
	group := -w.process.Process.Pid
	if err := syscall.Kill(group, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the worker: %w", err)
	}
	<-w.exited
	w.process = nil
	// The others of the group may outlive its first process for a moment.
	for end := time.Now().Add(groupTimeout); !errors.Is(syscall.Kill(group, 0), syscall.ESRCH) && time.Now().Before(end); {
		if err := pause(ctx, poll); err != nil {
			return err
		}
	}
	return nil
}

// stop tells the worker to end, and waits until it has stored what it has done.
func (w *workerProcess) stop() error {
	if err := w.check(); err != nil {
		return err
	}
	group := -w.process.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM) // it may have ended just now
	patience := time.NewTimer(stopTimeout)
	defer patience.Stop()
	select {
	case <-w.exited:
	case <-patience.C:
		_ = syscall.Kill(group, syscall.SIGKILL) // the same
		<-w.exited
		return w.withLog(fmt.Errorf("the worker has not ended %s after SIGTERM", stopTimeout))
	}
	w.process = nil
	return nil
}

// end leaves nothing behind.
func (w *workerProcess) end() error {
	if w.process != nil {
		_ = syscall.Kill(-w.process.Process.Pid, syscall.SIGKILL) // it may have ended
		<-w.exited
		w.process = nil
	}
	if w.log == nil {
		return nil
	}
	err := w.log.Close()
	if w.logPath == "" {
		err = errors.Join(err, os.Remove(w.log.Name()))
	}
	return err
}

// withLog adds the end of the worker's output to an error.
func (w *workerProcess) withLog(err error) error {
	content, readErr := os.ReadFile(w.log.Name())
	if readErr != nil || len(content) == 0 {
		return err
	}
	return fmt.Errorf("%w; it wrote:\n%s", err, content[max(0, len(content)-logShown):])
}
