package subproc

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// idleMax bounds the shims that wait for a next program.
const idleMax = 256

// Supervisor runs programs, any number at once. It keeps the shims that it
// has started, one for each program that ran at the same time, since starting
// one costs more than starting most programs. The zero value is ready to use;
// Close ends the shims. A shim runs one program at a time, and takes the next
// only when nothing of the one before is left.
type Supervisor struct {
	streamPatience time.Duration // in tests, another than streamPatience, which 0 means

	mu sync.Mutex
	// guarded by mu
	idle   []*shimProcess // the one used last at the end
	closed bool
}

// shimProcess is a shim, seen from this process.
type shimProcess struct {
	command *exec.Cmd
	line    *os.File
	reports *bufio.Reader // from the line
}

// Run runs the program and returns when all of it has ended. The end of the
// context ends the program: with SIGTERM and, after the grace, SIGKILL, or
// with SIGKILL at once when the cause is ErrKill. The error is about a program
// that could not be started, or a shim that has gone wrong.
func (s *Supervisor) Run(ctx context.Context, command Command) (Result, error) {
	if !shimEnabled.Load() {
		return Result{}, errors.New("this program cannot supervise others: its main must begin with a call of MaybeRunShim")
	}
	if err := command.complete(); err != nil {
		return Result{}, err
	}
	p := &supervised{command: command, stderr: NewTail(defaultStderrBytes), streamPatience: cmp.Or(s.streamPatience, streamPatience)}
	if err := p.start(s); err != nil {
		return Result{}, fmt.Errorf("start %s: %w", command.Args[0], err)
	}
	result, err := p.await(ctx)
	if p.reusable {
		s.giveBack(p.shim)
	} else {
		p.shim.end()
	}
	return result, err
}

// Close ends the shims that have nothing to do, and each of the others when
// its program has ended.
func (s *Supervisor) Close() {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, process := range idle {
		_ = process.line.Close() // all of them end at once
	}
	for _, process := range idle {
		process.end()
	}
}

// send has a shim run the request: one that is idle, or else a new one.
func (s *Supervisor) send(r request) (*shimProcess, error) {
	for {
		process := s.takeIdle()
		if process == nil {
			break
		}
		// The line breaks before the request is complete, or not at all: what fails here was not run.
		if process.isAlive() && send(process.line, r) == nil {
			return process, nil
		}
		process.end()
	}
	process, err := startShim()
	if err != nil {
		return nil, err
	}
	if err := send(process.line, r); err != nil {
		process.end()
		return nil, err
	}
	return process, nil
}

func (s *Supervisor) takeIdle() *shimProcess {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle) == 0 {
		return nil
	}
	last := len(s.idle) - 1
	process := s.idle[last]
	s.idle = s.idle[:last]
	return process
}

func (s *Supervisor) giveBack(process *shimProcess) {
	s.mu.Lock()
	keep := !s.closed && len(s.idle) < idleMax
	if keep {
		s.idle = append(s.idle, process)
	}
	s.mu.Unlock()
	if !keep {
		process.end()
	}
}

// startShim starts this executable once more, with one end of a socket.
func startShim() (*shimProcess, error) {
	self, err := selfPath()
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = theirs.Close() }() // the shim has its own by then
	command := &exec.Cmd{
		Path: self, Args: []string{shimName}, Env: []string{"GOMAXPROCS=2", "GOTRACEBACK=single"},
		Stderr: os.Stderr, ExtraFiles: []*os.File{theirs}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = adopted.start(func() (int, error) {
		if err := command.Start(); err != nil {
			return 0, err
		}
		return command.Process.Pid, nil
	})
	if err != nil {
		_ = ours.Close()
		return nil, fmt.Errorf("shim: %w", err)
	}
	return &shimProcess{command: command, line: ours, reports: bufio.NewReader(ours)}, nil
}

// socketPair returns two ends of a stream that can carry descriptors.
func socketPair() (ours, theirs *os.File, err error) {
	// Held while the ends are not yet closed on exec, as package os does.
	syscall.ForkLock.RLock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(pair[0])
		syscall.CloseOnExec(pair[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("socket: %w", err)
	}
	if err := syscall.SetNonblock(pair[0], true); err != nil { // so that reads have deadlines
		return nil, nil, fmt.Errorf("socket: %w", errors.Join(err, syscall.Close(pair[0]), syscall.Close(pair[1])))
	}
	return os.NewFile(uintptr(pair[0]), "line"), os.NewFile(uintptr(pair[1]), "line"), nil // #nosec G115 -- not negative
}

// isAlive says whether an idle shim still has its end of the line: there is
// nothing to read from it, but the end.
func (p *shimProcess) isAlive() bool {
	if err := p.line.SetReadDeadline(time.Now()); err != nil {
		return false
	}
	_, err := p.reports.Peek(1)
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	return p.line.SetReadDeadline(time.Time{}) == nil
}

// order sends an order. A broken line kills by itself. A shim that has not read
// the hundreds of orders that fit into the line has been stopped: it is killed.
func (p *shimProcess) order(order ...byte) {
	_ = p.line.SetWriteDeadline(time.Now().Add(orderPatience)) // closed already: fine
	if _, err := p.line.Write(order); errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.command.Process.Kill() // gone already: fine
	}
}

// end has the shim kill what it runs and end, and waits for that.
func (p *shimProcess) end() {
	_ = p.line.Close()                                                                 // closed already: fine
	impatient := time.AfterFunc(shimPatience, func() { _ = p.command.Process.Kill() }) // gone already: fine
	defer impatient.Stop()
	_ = p.command.Wait() // its own exit code says nothing
	adopted.forget(p.command.Process.Pid)
}

// readReport reads the next thing that the shim says.
func (p *shimProcess) readReport() (report, error) {
	line, err := p.reports.ReadBytes('\n')
	if err != nil {
		return report{}, errors.Join(io.ErrUnexpectedEOF, err) // a half line: the shim was killed
	}
	return parseReport(line)
}
