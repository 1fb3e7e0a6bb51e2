package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/worker"
)

// notice is how the program of a run hears why it is to end, and how long it has. A nil one does nothing.
type notice struct {
	command  Command
	run      worker.ExternalRun
	programs *Programs
	path     string
	signals  chan syscall.Signal // at most one
	drains   atomic.Bool         // the program has had DrainSignal
}

// noticeMessage is what the file has.
type noticeMessage struct {
	Reason string `json:"reason"`
	// SecondsLeft is how long the program has until SIGKILL.
	SecondsLeft float64   `json:"seconds_left"`
	At          time.Time `json:"at"`
}

// newNotice returns the notice of a run; nil for a program that does not want one.
func (p *Programs) newNotice(c Command, run worker.ExternalRun) (*notice, error) {
	if !c.TellsDrain {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.noticeDir == "" {
		dir, err := os.MkdirTemp("", "jobq-notices-")
		if err != nil {
			return nil, fmt.Errorf("folder for notices: %w", err)
		}
		p.noticeDir = dir
		if err := os.Chmod(dir, 0o755); err != nil { // #nosec G302 -- programs of other users read there
			return nil, fmt.Errorf("folder for notices: %w", err)
		}
	}
	path := filepath.Join(p.noticeDir, fmt.Sprintf("%d-%d.json", run.ID(), run.LeaseToken()))
	return &notice{command: c, run: run, programs: p, path: path, signals: make(chan syscall.Signal, 1)}, nil
}

// signal has the signal of a drain.
func (n *notice) signal() <-chan syscall.Signal {
	if n == nil {
		return nil
	}
	return n.signals
}

// listen tells the program of a drain as soon as that begins. The function returned ends it, and removes the file.
func (n *notice) listen(host *worker.ExternalHost) (end func()) {
	if n == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-host.Drained():
			n.write("drain", time.Until(host.DrainEnd())+n.command.Grace)
			n.drains.Store(true)
			n.signals <- n.command.DrainSignal
		case <-ended:
		}
	}()
	return func() {
		close(ended)
		<-done
		_ = os.Remove(n.path) // there is mostly none
	}
}

// tell is for when the program is asked to end, for that cause.
func (n *notice) tell(cause error) {
	if n == nil {
		return
	}
	switch {
	case errors.Is(cause, worker.ErrLeaseLost):
		n.write("lock_lost", n.run.KillMargin()/2)
	case errors.Is(cause, worker.ErrStalled): // which is a timeout, too
		n.write("stall", n.command.Grace)
	case errors.Is(cause, worker.ErrTimedOut), errors.Is(cause, context.DeadlineExceeded):
		n.write("timeout", n.command.Grace)
	case errors.Is(cause, worker.ErrCancelled):
		n.write("cancel", n.command.Grace)
	default:
		n.write("drain", n.command.Grace)
	}
}

// write puts the file in its place, whole. That it cannot be written keeps nothing from being stopped.
func (n *notice) write(reason string, left time.Duration) {
	content, err := json.Marshal(noticeMessage{Reason: reason, SecondsLeft: max(left, 0).Seconds(), At: time.Now().UTC()})
	if err == nil {
		_ = os.Mkdir(filepath.Dir(n.path), 0o755) // #nosec G301 -- see newNotice; it is there, unless old files were swept away
		err = replaceFile(n.path, append(content, '\n'))
	}
	if err != nil {
		log := n.programs.host.Logger()
		log.Warn("the notice for a program cannot be written", "job_id", n.run.ID(), "reason", reason, "error", err)
	}
}

// replaceFile writes a file that is never seen in part.
func replaceFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".notice-")
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(0o644), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// isAnsweredBy says whether the program has ended because of the signal of a drain, before it was asked to: it died of it,
// its shell says so, or it said "not now". Then its job goes back, and no attempt is used.
func (n *notice) isAnsweredBy(ended subproc.Result) bool {
	if n == nil || !n.drains.Load() || ended.Stopped {
		return false
	}
	return ended.Signal == subproc.SignalName(n.command.DrainSignal) || ended.ExitCode == 128+int(n.command.DrainSignal) ||
		ended.ExitCode == exitTempFail
}
