package subproc

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// shimName is the name under which this executable knows that it is a shim.
const shimName = "jobq-shim"

// lineFD is the shim's end of the socket to the worker: requests and orders
// come in, reports go out, and its end is the end of the worker.
const lineFD = 3

// shimEnabled says that this executable becomes a shim when it is asked to.
// The only state of the package: it belongs to the executable, not to a value.
var shimEnabled atomic.Bool

// MaybeRunShim makes this process a shim, and does not return, if it was
// started as one. It must be called before anything else in main, also in
// TestMain.
func MaybeRunShim() {
	name := ""
	if len(os.Args) > 0 {
		name = os.Args[0]
	}
	switch name {
	case shimName:
		runShim()
		os.Exit(0)
	case launchName:
		runtime.LockOSThread() // niceness is the thread's, and this one becomes the program
		launch(os.Args[1:])
	}
	shimEnabled.Store(true)
}

// shim runs one program at a time, for as long as the worker lives.
type shim struct {
	reports *json.Encoder

	mu sync.Mutex
	// guarded by mu
	group    int              // of the program that runs, or 0
	starting bool             // a program is about to start
	early    []syscall.Signal // came before it had started
	armed    *time.Duration   // likewise: the deadline that it is to have, or nil
	deadline time.Duration    // since boot, or 0; the worker may be stopped or hang
	alarm    *time.Timer      // at the deadline
	expired  bool             // the deadline has passed, which has killed the program
	freezes  bool             // the program is stopped at the deadline, not killed
	frozen   bool             // it is stopped
	orphaned bool             // the worker is gone: nothing more may start
}

// runShim runs programs, one after the other, until the worker is gone.
func runShim() {
	// A program's death signal is bound to the thread that starts it.
	runtime.LockOSThread()
	Conceal() // it has had the tokens of runs
	closeOnExecFrom(lineFD)
	// Caught and thrown away: what ends a program must not end the shim first.
	// Ignored signals would stay ignored in the programs.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	becomeSubreaper()
	s := &shim{reports: json.NewEncoder(os.NewFile(lineFD, "line"))}
	requests := make(chan request)
	go func() {
		s.obey(lineFD, requests)
		close(requests)
	}()
	for r := range requests {
		_ = s.reports.Encode(s.run(r)) // nobody left to tell
	}
}

// run runs a program to its end, ends what it has left, and says how it ended.
func (s *shim) run(r request) report {
	pid, err := s.start(r)
	if err != nil {
		return failureReport(err)
	}
	_ = s.reports.Encode(report{PID: pid}) // nobody left to tell
	status, usage, err := reap(pid, s.forget)
	left := endDescendants()
	if err != nil {
		return report{Failure: "wait: " + err.Error()}
	}
	final := reportOf(status, usage)
	final.Expired, final.Left = s.hasExpired(), left
	return final
}

// start starts the program.
func (s *shim) start(r request) (int, error) {
	defer closeAll(r.streams) // the program's now: its end must show as the end of the streams
	args, env := texts(r.Args), texts(r.Env)
	path, err := lookPath(args[0], env)
	if err != nil {
		return 0, err
	}
	descriptors := make([]uintptr, len(r.streams))
	for i, stream := range r.streams {
		descriptors[i] = stream.Fd()
	}
	attributes := &syscall.ProcAttr{Dir: string(r.Dir), Env: env, Files: descriptors, Sys: programAttributes()}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.starting = false }()
	if s.orphaned {
		return 0, syscall.ESRCH
	}
	start := fork
	if !r.Attributes.isZero() {
		start = r.Attributes.fork
	}
	pid, err := start(path, args, attributes)
	if err == nil {
		s.group, s.expired, s.freezes, s.frozen = pid, false, r.Freezes, false
		deadline := time.Duration(r.DeadlineNs)
		if s.armed != nil {
			deadline = *s.armed
		}
		s.setDeadlineLocked(deadline)
		for _, number := range s.early {
			_ = syscall.Kill(-pid, number) // it has just started
		}
	}
	return pid, err
}

func fork(path string, args []string, attributes *syscall.ProcAttr) (int, error) {
	pid, err := syscall.ForkExec(path, args, attributes) // #nosec G204 -- to run what it is told is the shim's purpose
	if err != nil {
		return 0, &os.PathError{Op: "fork/exec", Path: path, Err: err}
	}
	return pid, nil
}

// fork starts this executable, which takes the attributes on and becomes the
// program. It waits for that, so that the reason of a failure is known.
func (a *Attributes) fork(path string, args []string, attributes *syscall.ProcAttr) (int, error) {
	self, err := selfPath()
	if err != nil {
		return 0, err
	}
	if args, err = launchArgs(a, path, args); err != nil {
		return 0, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer func() { _ = reader.Close() }() // read to its end
	attributes.Files = append(attributes.Files, writer.Fd())
	pid, err := fork(self, args, attributes)
	_ = writer.Close() // the child has its own
	if err != nil {
		return 0, err
	}
	said, _ := io.ReadAll(reader) // ends when the child has become the program, or has failed
	if len(said) == 0 {
		return pid, nil
	}
	_, _, _ = wait(pid)
	reason, err := parseReport(said)
	if err != nil {
		return 0, err
	}
	return 0, &startFailure{reason.Failure, syscall.Errno(reason.Errno)}
}

// forget says that the group's number is no longer the program's.
func (s *shim) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.group, s.frozen = 0, false
	s.setDeadlineLocked(0)
}

// setDeadlineLocked makes the program die or freeze at the deadline, unless another one
// comes before. A frozen program goes on if the deadline has not passed.
func (s *shim) setDeadlineLocked(deadline time.Duration) {
	if s.alarm != nil {
		s.alarm.Stop() // fired already: it finds another deadline
	}
	s.deadline = deadline
	if deadline > 0 {
		s.alarm = time.AfterFunc(deadline-sinceBoot(), s.expire)
	}
	if s.frozen && (deadline == 0 || sinceBoot() < deadline) {
		s.thawLocked()
	}
}

// expire kills or freezes the program of a worker that has not extended the deadline.
func (s *shim) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group == 0 || s.deadline == 0 || sinceBoot() < s.deadline {
		return
	}
	if s.freezes && s.freezeLocked() {
		return
	}
	s.expired = true
	s.killLocked() // under the same lock: the next program is not this one
}

// freezeLocked stops all processes of the program. It returns false if they multiply faster
// than they can be stopped: then some go on.
func (s *shim) freezeLocked() (all bool) {
	_ = syscall.Kill(-s.group, syscall.SIGSTOP) // none left: fine
	s.frozen = stopDescendants()
	return s.frozen
}

// thawLocked lets the processes of a frozen program go on. None of them can have started
// others meanwhile.
func (s *shim) thawLocked() {
	s.frozen = false
	_ = syscall.Kill(-s.group, syscall.SIGCONT) // none left: fine
	signalDescendants(syscall.SIGCONT)
}

// terminate asks the program to end. One that is frozen cannot, and may not go on to do it:
// it is killed.
func (s *shim) terminate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		s.killLocked()
		return
	}
	s.signalLocked(syscall.SIGTERM)
}

func (s *shim) hasExpired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expired
}

// wait reaps the program.
func wait(pid int) (status syscall.WaitStatus, usage syscall.Rusage, err error) {
	for {
		if _, err = syscall.Wait4(pid, &status, 0, &usage); err != syscall.EINTR { //nolint:errorlint // a bare errno
			return status, usage, err
		}
	}
}

// obey hands requests on and carries out orders. When the line breaks, there
// is nobody left for whom a program could work.
func (s *shim) obey(line int, requests chan<- request) {
	for {
		order, r, err := receive(line)
		if err != nil {
			order = orderKill
		}
		switch order {
		case orderRun:
			s.prepare()
			requests <- r
		case orderTerminate:
			s.terminate()
		case orderSignal:
			s.signal(r.Signal)
		case orderKill:
			s.kill(err != nil)
		case orderDeadline:
			s.arm(time.Duration(r.DeadlineNs))
		}
		if err != nil {
			return
		}
	}
}

// prepare makes signals and deadlines count for the program that is about to
// start.
func (s *shim) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting, s.early, s.armed = true, nil, nil
}

// arm gives the program another deadline, now or when it has started.
func (s *shim) arm(deadline time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.group > 0 {
		s.setDeadlineLocked(deadline)
	} else if s.starting {
		s.armed = &deadline
	}
}

// signal sends the program's group a signal, now or when it has started;
// without a program, nothing.
func (s *shim) signal(number syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signalLocked(number)
}

func (s *shim) signalLocked(number syscall.Signal) {
	if s.group > 0 {
		_ = syscall.Kill(-s.group, number) // none left: fine
	} else if s.starting {
		s.early = append(s.early, number)
	}
}

func (s *shim) kill(orphaned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orphaned = s.orphaned || orphaned
	s.killLocked()
}

// killLocked kills the program and all that it has started, now or when it has started.
func (s *shim) killLocked() {
	s.signalLocked(syscall.SIGKILL)
	if s.group > 0 {
		signalDescendants(syscall.SIGKILL)
	}
}

// lookPath finds the program as a shell would, in the PATH that it will have.
// Folders of PATH that are not absolute do not count.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, variable := range slices.Backward(env) {
		list, ok := strings.CutPrefix(variable, "PATH=")
		if !ok {
			continue
		}
		for _, folder := range filepath.SplitList(list) {
			path := filepath.Join(folder, name)
			info, err := os.Stat(path)
			if err == nil && filepath.IsAbs(folder) && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
		break
	}
	return "", fmt.Errorf("%s: not found in PATH: %w", name, syscall.ENOENT)
}

func reportOf(status syscall.WaitStatus, usage syscall.Rusage) report {
	final := report{Ended: true, ExitCode: status.ExitStatus(), MaxRSSBytes: int64(usage.Maxrss) * maxRSSUnit}
	final.CPUNs = usage.Utime.Nano() + usage.Stime.Nano()
	if status.Signaled() {
		final.Signal = signalName(status.Signal())
	}
	return final
}

// signalName is the name that people know, for the signals that end programs.
func signalName(number syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGABRT: "SIGABRT", syscall.SIGALRM: "SIGALRM", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE",
		syscall.SIGHUP: "SIGHUP", syscall.SIGILL: "SIGILL", syscall.SIGINT: "SIGINT", syscall.SIGKILL: "SIGKILL",
		syscall.SIGPIPE: "SIGPIPE", syscall.SIGQUIT: "SIGQUIT", syscall.SIGSEGV: "SIGSEGV", syscall.SIGSYS: "SIGSYS",
		syscall.SIGTERM: "SIGTERM", syscall.SIGTRAP: "SIGTRAP", syscall.SIGUSR1: "SIGUSR1", syscall.SIGUSR2: "SIGUSR2",
		syscall.SIGXCPU: "SIGXCPU", syscall.SIGXFSZ: "SIGXFSZ",
	}
	if name, ok := names[number]; ok {
		return name
	}
	return fmt.Sprintf("signal %d", int(number))
}
