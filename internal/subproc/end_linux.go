package subproc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/jobq-dev/jobq/internal/mutant"
)

// endPatience is how long processes that do not end are killed again and again: those of another
// user, which may not be killed, and those that the kernel does not let end. It is less than
// shimPatience.
const endPatience = 5 * time.Second

// untilEnded calls kill until it finds nothing that is left, less and less often, or until the patience is
// over. What is left then is returned.
func untilEnded(kill func() []process) []process {
	begun := time.Now()
	for wait := time.Millisecond / 4; ; wait = min(2*wait, 100*time.Millisecond) {
		left := kill()
		if len(left) == 0 || time.Since(begun) > endPatience {
			return left
		}
		<-time.After(wait)
	}
}

// endDescendants kills what the program has left and reaps it, until there is nothing left. It
// returns what cannot be killed.
func endDescendants() []leftProcess {
	if reapChildren() { // most of the time
		return nil
	}
	return describe(untilEnded(func() []process {
		left := signalDescendants(syscall.SIGKILL)
		if reapChildren() {
			return nil
		}
		return left
	}))
}

// reapChildren reaps the children that have ended, and says whether there are no others.
func reapChildren() (none bool) {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case err == syscall.EINTR, err == nil && pid > 0: //nolint:errorlint // a bare errno
		case err != nil: // ECHILD
			return true
		default:
			return false
		}
	}
}

// signalDescendants sends a signal to every process below the shim, and returns them.
func signalDescendants(number syscall.Signal) []process {
	queue := descendants()
	for _, process := range queue {
		_ = syscall.Kill(process.pid, number) // ended meanwhile, or not allowed: the next round sees it
	}
	return queue
}

// stopRounds bounds how often stopDescendants looks for processes that have just been started.
const stopRounds = 100

// stopDescendants sends SIGSTOP to every process below the shim, until there is none that it has
// not been sent to. A process that was sent it starts no other. It returns false if there were new
// ones in each round. Those of another user cannot be stopped, as they cannot be killed.
func stopDescendants() (all bool) {
	sent := make(map[int]bool)
	for range stopRounds {
		isNew := false
		for _, process := range descendants() {
			if !sent[process.pid] {
				sent[process.pid], isNew = true, true
				_ = syscall.Kill(process.pid, syscall.SIGSTOP) // ended meanwhile, or not allowed
			}
		}
		if !isNew {
			return true
		}
	}
	return false
}

// descendants are the processes below the shim, parents first.
func descendants() []process {
	children := make(map[int][]process)
	for _, process := range processes() {
		children[process.parent] = append(children[process.parent], process)
	}
	queue := children[os.Getpid()]
	for i := 0; i < len(queue); i++ {
		queue = append(queue, children[queue[i].pid]...)
	}
	return queue
}

// endOrphans kills what a shim has left that was killed itself, until none is left: its session, the
// group of its program, and what this process has adopted. It returns what cannot be killed.
func endOrphans(shim, group int) []leftProcess {
	return describe(untilEnded(func() []process {
		var left []process
		if !hasEnded(shim) { // the line breaks before its children get another parent, which is this process
			left = append(left, process{pid: shim, name: shimName})
			_ = syscall.Kill(shim, syscall.SIGKILL) // ended meanwhile: fine
		}
		for _, process := range adopted.orphans() {
			isOfShim := process.session == shim || group > 0 && process.group == group
			switch {
			case process.state == 'Z' && process.parent == os.Getpid():
				// Its children are adopted when the last of its threads has ended, perhaps since they were listed. So look again.
				left = append(left, process)
				_, _ = syscall.Wait4(process.pid, nil, syscall.WNOHANG, nil) // some threads have not ended: the next round sees it
			case process.state != 'Z' && (isOfShim || process.parent == os.Getpid()):
				left = append(left, process)
				_ = syscall.Kill(process.pid, syscall.SIGKILL) // ended meanwhile, or not allowed: the next round sees it
			}
		}
		return left
	}))
}

// hasEnded says whether a child has ended, with all its threads, and leaves it to be reaped.
func hasEnded(pid int) bool {
	var info [128]byte                                                                                         // siginfo_t
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, waitPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), // #nosec G103 G115 -- the call's convention
		waitExited|waitKeep|syscall.WNOHANG, 0, 0)
	return errno != 0 || *(*int32)(unsafe.Pointer(&info[siginfoPID])) != 0 // #nosec G103 -- as the kernel has laid it out
}

// adoption is what a process knows that adopts the processes of its shims.
type adoption struct {
	mu sync.RWMutex // held for reading while a shim is started, so that none is taken for an orphan
	on bool         // guarded by mu

	shimsMu sync.Mutex
	shims   map[int]struct{} // guarded by shimsMu
}

// adopted belongs to the executable, not to a value, as the right to adopt does.
var adopted = adoption{shims: make(map[int]struct{})}

// AdoptOrphans makes processes that are left when somebody kills a shim children of this process,
// which then ends them. It is for an executable whose only children are jobq's: all others are ended too.
// Elsewhere than on Linux it does nothing.
func AdoptOrphans() {
	if !mutant.Adopts() {
		return
	}
	adopted.mu.Lock()
	defer adopted.mu.Unlock()
	adopted.on = true
	becomeSubreaper()
}

// start starts a shim, and knows from then on that it is one.
func (a *adoption) start(start func() (pid int, err error)) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	pid, err := start()
	if err == nil {
		a.shimsMu.Lock()
		a.shims[pid] = struct{}{}
		a.shimsMu.Unlock()
	}
	return err
}

// forget forgets a shim that has ended and was waited for.
func (a *adoption) forget(pid int) {
	a.shimsMu.Lock()
	defer a.shimsMu.Unlock()
	delete(a.shims, pid)
}

// orphans are all processes but the shims, and without adoption but all children of this process,
// which are not jobq's then.
func (a *adoption) orphans() []process {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := processes()
	a.shimsMu.Lock()
	defer a.shimsMu.Unlock()
	var orphans []process
	for _, process := range all {
		_, isShim := a.shims[process.pid]
		if !isShim && (a.on || process.parent != os.Getpid()) {
			orphans = append(orphans, process)
		}
	}
	return orphans
}

// reap reaps adopted processes that could not be ended, and have ended since.
func (a *adoption) reap() {
	for _, process := range a.orphans() {
		if process.state == 'Z' && process.parent == os.Getpid() {
			_, _ = syscall.Wait4(process.pid, nil, syscall.WNOHANG, nil) // it has ended
		}
	}
}

// describe says who the processes are, while they are there.
func describe(left []process) []leftProcess {
	var described []leftProcess
	for _, process := range left {
		info, err := os.Stat("/proc/" + strconv.Itoa(process.pid))
		if err != nil {
			continue // it has ended
		}
		one := leftProcess{PID: process.pid, Name: process.name}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			one.UID = stat.Uid
		}
		described = append(described, one)
	}
	return described
}

// process is what /proc/PID/stat says of one.
type process struct {
	pid, parent, group, session int
	state                       byte
	name                        string
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
	begin, end := bytes.IndexByte(content, '('), bytes.LastIndexByte(content, ')')
	fields := bytes.Fields(content[end+1:])
	if begin < 0 || end < begin || len(fields) < 4 {
		return process{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	session, err3 := strconv.Atoi(string(fields[3]))
	return process{pid: pid, parent: parent, group: group, session: session, state: fields[0][0], name: string(content[begin+1 : end])},
		errors.Join(err1, err2, err3) == nil
}
