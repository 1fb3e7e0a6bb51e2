package crashtest

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
	"syscall"
	"time"
)

const (
	// stopTimeout is Config.StopTimeout where none is given.
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
	// patience is how long the worker may take to end when it is told to.
	patience time.Duration
	log      *os.File
	process  *exec.Cmd     // nil when it does not run
	exited   chan struct{} // closed when it has ended
	result   error         // of its end; read after exited is closed
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
func (w *workerProcess) kill() error {
	if err := w.check(); err != nil {
		return err
	}
	return w.killGroup()
}

// stop tells the worker to end, and waits until it has stored what it has done. What
// has not ended in time is killed, and an error says so.
func (w *workerProcess) stop() error {
	if err := w.check(); err != nil {
		return err
	}
	_ = syscall.Kill(w.group(), syscall.SIGTERM) // it may have ended just now
	patience := time.NewTimer(w.patience)
	defer patience.Stop()
	select {
	case <-w.exited:
	case <-patience.C:
		return errors.Join(w.withLog(fmt.Errorf("the worker has not ended %s after SIGTERM, and was killed", w.patience)), w.killGroup())
	}
	// Its first process may be a script, and the worker one of those it has started.
	if !w.awaitGroup(patience.C) {
		return errors.Join(w.withLog(fmt.Errorf("processes of the worker have not ended %s after SIGTERM, and were killed", w.patience)), w.killGroup())
	}
	w.process = nil
	return nil
}

// end leaves nothing behind.
func (w *workerProcess) end() (err error) {
	if w.process != nil {
		err = w.killGroup()
	}
	if w.log == nil {
		return err
	}
	err = errors.Join(err, w.log.Close())
	if w.logPath == "" {
		err = errors.Join(err, os.Remove(w.log.Name()))
	}
	return err
}

func (w *workerProcess) group() int { return -w.process.Process.Pid }

// killGroup ends what is left of the process group.
func (w *workerProcess) killGroup() error {
	if err := syscall.Kill(w.group(), syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the worker: %w", err)
	}
	<-w.exited
	patience := time.NewTimer(groupTimeout)
	defer patience.Stop()
	if !w.awaitGroup(patience.C) {
		return fmt.Errorf("kill the worker: processes of its group %d are there %s after SIGKILL", w.process.Process.Pid, groupTimeout)
	}
	w.process = nil
	return nil
}

// awaitGroup waits until nothing is left of the process group, whose first process has
// ended, and says whether that is so.
func (w *workerProcess) awaitGroup(patience <-chan time.Time) bool {
	for look := time.NewTicker(poll); ; {
		if w.groupIsGone() {
			look.Stop()
			return true
		}
		select {
		case <-patience:
			look.Stop()
			return false
		case <-look.C:
		}
	}
}

// groupIsGone says whether nothing of the process group runs. What has ended and was
// not waited for, as where the first process of a container waits for nobody, does not.
func (w *workerProcess) groupIsGone() bool {
	if errors.Is(syscall.Kill(w.group(), 0), syscall.ESRCH) {
		return true
	}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // Linux alone has these
	ended := 0
	for _, path := range stats {
		content, _ := os.ReadFile(path) // #nosec G304 -- of /proc; empty if the process is gone
		// PID (NAME) STATE PARENT GROUP: a name may have anything in it.
		fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
		if len(fields) < 3 || fields[2] != strconv.Itoa(-w.group()) {
			continue
		}
		if fields[0] != "Z" && fields[0] != "X" {
			return false
		}
		ended++
	}
	return ended > 0
}

// withLog adds the end of the worker's output to an error.
func (w *workerProcess) withLog(err error) error {
	content, readErr := os.ReadFile(w.log.Name())
	if readErr != nil || len(content) == 0 {
		return err
	}
	return fmt.Errorf("%w; it wrote:\n%s", err, content[max(0, len(content)-logShown):])
}
