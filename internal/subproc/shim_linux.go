package subproc

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Constants of Linux that package syscall does not have.
const (
	prSetChildSubreaper = 36        // linux/prctl.h
	waitPID             = 1         // P_PID of linux/wait.h
	waitExited          = 4         // WEXITED
	waitKeep            = 0x1000000 // WNOWAIT

	maxRSSUnit = 1024 // getrusage counts in KiB
)

// selfPath is this executable, also after its file was replaced.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// programAttributes put the program into a group of its own, and have the
// kernel kill it if somebody kills the shim.
func programAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// becomeSubreaper makes processes whose parents have ended children of the
// shim, so that none gets away by forking twice.
func becomeSubreaper() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0) // in Linux since 3.4
}

// awaitExit waits until the child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	var info [128]byte // siginfo_t, which nobody reads
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), // #nosec G103 G115 -- the call's convention
			waitExited|waitKeep, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}

// endDescendants kills what the program has left and reaps it, until there is
// nothing left.
func endDescendants() {
	for {
		killDescendants()
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && err != syscall.EINTR { //nolint:errorlint // a bare errno
			return // ECHILD: no children
		}
	}
}

// killDescendants sends SIGKILL to every process below the shim.
func killDescendants() {
	children := make(map[int][]int)
	for _, process := range processes() {
		children[process.parent] = append(children[process.parent], process.pid)
	}
	queue := children[os.Getpid()]
	for len(queue) > 0 {
		pid := queue[0]
		queue = append(queue[1:], children[pid]...)
		_ = syscall.Kill(pid, syscall.SIGKILL) // ended meanwhile: fine
	}
}

// killSession sends SIGKILL to every process of a session until none is left:
// one may fork while it is looked for.
func killSession(session int) {
	for found := true; found; <-time.After(time.Millisecond) {
		found = false
		for _, process := range processes() {
			if process.session == session && process.state != 'Z' {
				found = true
				_ = syscall.Kill(process.pid, syscall.SIGKILL) // ended meanwhile: fine
			}
		}
	}
}

// process is what /proc/PID/stat says of one.
type process struct {
	pid, parent, session int
	state                byte
}

// processes returns all that there are; none without /proc.
func processes() []process {
	var all []process
	entries, _ := os.ReadDir("/proc") // empty without /proc: then the group has to do
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if process, ok := readProcess(pid); ok {
			all = append(all, process)
		}
	}
	return all
}

// readProcess reads the fields after the name, which is in brackets and may
// have anything in it: state, parent, group, session.
func readProcess(pid int) (process, bool) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 4 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	return process{pid: pid, parent: parent, session: session, state: fields[0][0]}, err1 == nil && err2 == nil
}
