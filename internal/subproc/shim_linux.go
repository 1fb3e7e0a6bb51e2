package subproc

import (
	"os"
	"syscall"
	"time"
	"unsafe"
)

// Constants of Linux that package syscall does not have.
const (
	prSetChildSubreaper = 36        // linux/prctl.h
	waitAll             = 0         // P_ALL of linux/wait.h
	waitPID             = 1         // P_PID
	waitExited          = 4         // WEXITED
	waitKeep            = 0x1000000 // WNOWAIT

	sysCloseRange = 436 // the same on every architecture

	// siginfoPID is where si_pid is in siginfo_t: after three ints, aligned for a pointer.
	siginfoPID = 12 + (unsafe.Sizeof(uintptr(0)) - 4)

	// sendFlags: a line without a shim is an error, not a signal.
	sendFlags = syscall.MSG_NOSIGNAL

	maxRSSUnit = 1024 // getrusage counts in KiB
)

// selfPath is this executable, also after its file was replaced.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// programAttributes put the program into a group of its own, and have the
// kernel kill it if somebody kills the shim.
func programAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// dieWithParent has the kernel kill this process if somebody kills the shim.
func dieWithParent() error {
	const setDeathSignal = 1 // PR_SET_PDEATHSIG of linux/prctl.h
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setDeathSignal, uintptr(syscall.SIGKILL), 0); errno != 0 {
		return errno
	}
	return nil
}

// sinceBoot is the time since the machine has started, as every process of it
// sees it; it also runs while the machine is suspended.
func sinceBoot() time.Duration {
	const clockBootTime = 7 // CLOCK_BOOTTIME of linux/time.h
	var now syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&now)), 0) // #nosec G103 -- the call's convention; in Linux since 2.6.39
	return time.Duration(now.Nano())
}

// hasDeadlines: processes have a clock in common.
const hasDeadlines = true

// unread is how many bytes are in a pipe, seen from the end that writes; -1 when
// that cannot be known.
func unread(pipe *os.File) int {
	raw, err := pipe.SyscallConn()
	if err != nil {
		return -1
	}
	count := int32(-1)
	_ = raw.Control(func(descriptor uintptr) { // fails when it is closed: then nothing is known
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, descriptor, syscall.TIOCINQ, uintptr(unsafe.Pointer(&count))) // #nosec G103 -- the call's convention
		if errno != 0 {
			count = -1
		}
	})
	return int(count)
}

// closeOnExecFrom keeps the descriptors from this one on from programs, also
// those that the worker was started with.
func closeOnExecFrom(first int) {
	const closeRangeCloexec = 4
	if _, _, errno := syscall.RawSyscall(sysCloseRange, uintptr(first), uintptr(^uint32(0)), closeRangeCloexec); errno != 0 {
		syscall.CloseOnExec(first) // Linux before 5.11: the line at least
	}
}

// becomeSubreaper makes processes whose parents have ended children of the
// shim, so that none gets away by forking twice.
func becomeSubreaper() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0) // in Linux since 3.4
}

// Conceal closes this process's memory and environment, in which secrets are, to other processes of its
// user, such as the programs that it starts: /proc/PID/environ and mem, debuggers, core files. Programs
// become open again when they start. Elsewhere than on Linux it does nothing.
func Conceal() {
	const setDumpable = 4                                              // PR_SET_DUMPABLE of linux/prctl.h
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0) // in Linux since 2.4
}

// awaitExit waits until the program has ended, and leaves it to be reaped, so
// that its group's number cannot be another's. Adopted children that end before
// it are reaped.
func awaitExit(pid int) {
	for {
		var info [128]byte                                                                              // siginfo_t
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitAll, 0, uintptr(unsafe.Pointer(&info)), // #nosec G103 -- the call's convention
			waitExited|waitKeep, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		ended := int(*(*int32)(unsafe.Pointer(&info[siginfoPID]))) // #nosec G103 -- as the kernel has laid it out
		if errno != 0 || ended == pid {
			return
		}
		_, _ = syscall.Wait4(ended, nil, 0, nil) // it has ended: nothing can go wrong
	}
}

// reap waits for the program and kills its group, whose number is the group's
// until forget is called.
func reap(pid int, forget func()) (syscall.WaitStatus, syscall.Rusage, error) {
	awaitExit(pid)
	forget()
	_ = syscall.Kill(-pid, syscall.SIGKILL) // none left: fine
	return wait(pid)
}
