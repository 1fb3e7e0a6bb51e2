package subproc

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync/atomic"
	"syscall"
)

// shimName is the name under which this executable knows that it is a shim.
const shimName = "jobq-shim"

// File descriptors of the shim besides the standard ones.
const (
	controlFD = 3 // the program's control channel
	lifeFD    = 4 // orders, and the life line
	reportFD  = 5
)

// shimEnabled says that this executable becomes a shim when it is asked to.
// The only state of the package: it belongs to the executable, not to a value.
var shimEnabled atomic.Bool

// MaybeRunShim makes this process a shim, and does not return, if it was
// started as one. It must be called before anything else in main, also in
// TestMain.
func MaybeRunShim() {
	if len(os.Args) == 0 || os.Args[0] != shimName {
		shimEnabled.Store(true)
		return
	}
	runShim(os.Args[1:])
	os.Exit(0)
}

// runShim starts the program, obeys orders until it has ended, ends what it
// has left, and reports.
func runShim(args []string) {
	// The program's death signal is bound to the thread that starts it.
	runtime.LockOSThread()
	for _, descriptor := range []int{lifeFD, reportFD} {
		syscall.CloseOnExec(descriptor)
	}
	// Caught and thrown away: what ends the program must not end the shim first.
	// Ignored signals would stay ignored in the program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	reports := json.NewEncoder(os.NewFile(reportFD, "reports"))
	becomeSubreaper()
	streams := []*os.File{os.Stdin, os.Stdout, os.Stderr, os.NewFile(controlFD, "control")}
	program, err := startProgram(args, streams)
	if err != nil {
		_ = reports.Encode(report{Failure: err.Error()}) // nobody left to tell
		return
	}
	_ = reports.Encode(report{PID: program.Pid}) // likewise
	closeAll(streams)                            // the program's now: its end must show as the end of the streams
	go obey(program.Pid)
	awaitExit(program.Pid)
	// Not reaped yet, so that the group's number cannot be another's.
	_ = syscall.Kill(-program.Pid, syscall.SIGKILL) // none left: fine
	state, err := program.Wait()
	if err != nil {
		_ = reports.Encode(report{Failure: "wait: " + err.Error()})
		return
	}
	endDescendants()
	_ = reports.Encode(reportOf(state))
}

// startProgram starts the program in a group of its own.
func startProgram(args []string, streams []*os.File) (*os.Process, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	return os.StartProcess(path, args, &os.ProcAttr{Env: os.Environ(), Files: streams, Sys: programAttributes()}) // #nosec G702 -- to run what it is told is the shim's purpose
}

// obey carries out orders. When the life line breaks, there is nobody left
// for whom the program could work.
func obey(group int) {
	lifeLine := os.NewFile(lifeFD, "life line")
	order := make([]byte, 1)
	for {
		count, err := lifeLine.Read(order)
		switch {
		case err != nil || count == 0 || order[0] == orderKill:
			_ = syscall.Kill(-group, syscall.SIGKILL) // none left: fine
			killDescendants()
			return
		case order[0] == orderTerminate:
			_ = syscall.Kill(-group, syscall.SIGTERM) // likewise
		}
	}
}

func reportOf(state *os.ProcessState) report {
	final := report{Ended: true, ExitCode: state.ExitCode(), CPU: state.UserTime() + state.SystemTime()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		final.Signal = signalName(status.Signal())
	}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		final.MaxRSSBytes = int64(usage.Maxrss) * maxRSSUnit
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
