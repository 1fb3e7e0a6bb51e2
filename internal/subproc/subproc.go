// Package subproc runs a program with everything that it starts, so that all
// of it can be ended: for a lost lease at once, else after it was asked.
//
// Between this process and the program stands a shim: this executable once
// more, in a mode of its own (MaybeRunShim). It leads a session, is the parent
// of the program's process group, adopts what the program's children leave
// behind (Linux), and holds one end of a socket, the line. When this process ends, however it ends, the line breaks and the shim
// kills everything below it. Setpgid with a death signal, which is what there
// is without a shim, ends the program and leaves its children.
//
// A shim runs one program after the other (Supervisor), which saves the start
// of a second process for each, and says that one has ended only when nothing
// of it is left.
package subproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// ErrKill as the cause of the context's end means that the program must not
// have time to do anything more.
var ErrKill = errors.New("kill at once")

const (
	defaultOutputBytes = 64 << 10
	defaultStderrBytes = 16 << 10
	defaultGrace       = 3 * time.Second
	// shimPatience is how long the shim may take to kill and report, after
	// which it is killed itself; less, but not less than shimPatienceMin, when
	// that would be after the program's deadline.
	shimPatience    = 10 * time.Second
	shimPatienceMin = 250 * time.Millisecond
	// orderPatience is how long the line to a shim may be full.
	orderPatience = time.Second
	// streamPatience is how long the program's streams may stay open after it
	// and everything below it have ended, or its shim was killed.
	streamPatience = 3 * time.Second
)

// Command says what to run. Only Args is needed.
type Command struct {
	// Args is the program, looked up in Env's PATH, and its arguments.
	Args []string
	// Dir is the working directory; "" is this process's.
	Dir string
	// Env is the whole environment, as Environ makes it.
	Env []string
	// Attributes are the user, limits and niceness of the program. Nil for none.
	Attributes *Attributes
	// Stdin is what the program can read.
	Stdin []byte
	// Notice has signals that the program's group gets while it runs, and that do not stop it.
	// Nil means none.
	Notice <-chan syscall.Signal
	// Kill, when it is closed, means SIGKILL at once, also while the program has
	// been asked to end and the grace runs. Nil means never.
	Kill <-chan struct{}
	// Deadline, asked every DeadlineEvery, is the time since boot (CLOCK_BOOTTIME)
	// at which the program is killed even if this process is stopped or hangs;
	// zero means never. Linux only. Nil means never.
	Deadline      func() time.Duration
	DeadlineEvery time.Duration
	// Freezes makes the program freeze at its Deadline instead of being killed: its
	// processes are stopped (SIGSTOP) while the deadline has passed, and continue when it
	// is a later one. A frozen program that is told to end is killed. See CanFreeze.
	Freezes bool
	// Renew asks for the Deadline at once when something is received. Nil means never.
	Renew <-chan struct{}
	// Grace is the time between SIGTERM and SIGKILL. Default 3 seconds.
	Grace time.Duration
	// Started, when it is not nil, is called when the program has started.
	Started func()
	// Talk, when it is not nil, has the program's standard input and output
	// instead of Stdin and Output. It returns at the latest when the output ends.
	Talk func(Conversation)
	// Output keeps the end of standard output and error, and may be read while
	// the program runs. Default: one of 64 KiB.
	Output *Tail
	// Control is told what the program writes on file descriptor 3, and
	// ControlError what it writes there that cannot be understood. Neither is
	// called after Run has returned. Nil means that nobody listens.
	Control      func(Message)
	ControlError func(error)
}

// CanFreeze says whether programs can be frozen on this system: on Linux.
const CanFreeze = hasDeadlines

// IsMachineTrouble says that a program could not be started for want of
// processes, memory or descriptors, or because its file is being written: nothing
// that the program, its arguments or its settings are to blame for.
func IsMachineTrouble(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ETXTBSY} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// IsProgramTrouble says that the program, its interpreter or its working directory is not there,
// or may not be used: what the program's file or its settings are to blame for. Arguments and
// environment are not: what is too long of them is another error.
func IsProgramTrouble(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.ENOENT, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.ENOEXEC, syscall.ELOOP, syscall.ENAMETOOLONG,
		syscall.EIO, syscall.ESTALE, syscall.EISDIR,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// CheckProgram says whether the program that is named first, with this working directory and
// whole environment, could be started now, as far as that can be seen from here.
func CheckProgram(name, dir string, env []string) error {
	if err := checkDir(dir); err != nil {
		return err
	}
	path, err := lookPath(name, env)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return &os.PathError{Op: "exec", Path: path, Err: syscall.EACCES}
	}
	return nil
}

func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("chdir %s: not a folder, or not there: %w", dir, err)
	}
	return nil
}

// startFailure is why a program could not be started, told by its shim.
type startFailure struct {
	text  string
	errno syscall.Errno
}

func (f *startFailure) Error() string { return f.text }

// Unwrap is the system's error; nil for none.
func (f *startFailure) Unwrap() error {
	if f.errno == 0 {
		return nil
	}
	return f.errno
}

// Conversation is what Talk has of a program that is given its work bit by bit.
type Conversation struct {
	// Stdin is closed when the program has ended.
	Stdin  io.WriteCloser
	Stdout io.Reader
	// Arm is to be called before the program is given work of which the Deadline
	// was not asked before: the next look may never come.
	Arm func()
	// Settle keeps in Output what the program has written to standard error
	// until now, also what waits in the pipe still.
	Settle func()
	// Unread is how many bytes of Stdin the program has not read; -1 where that cannot be known.
	Unread func() int
}

// complete fills in defaults and refuses what cannot be run.
func (c *Command) complete() error {
	if len(c.Args) == 0 {
		return errors.New("the command is empty")
	}
	if err := checkDir(c.Dir); err != nil {
		return err
	}
	if err := c.Attributes.Check(); err != nil {
		return err
	}
	if !hasDeadlines || c.DeadlineEvery <= 0 {
		c.Deadline = nil
	}
	if c.Grace <= 0 {
		c.Grace = defaultGrace
	}
	if c.Output == nil {
		c.Output = NewTail(defaultOutputBytes)
	}
	return nil
}

// Result is how a program ended.
type Result struct {
	ExitCode int    // 0 to 255, or -1 when a signal ended it
	Signal   string // such as "SIGKILL", or ""
	Stopped  bool   // it was told to end
	Expired  bool   // its deadline has passed, which has killed it
	Output   []byte // the end of standard output and error together
	Stderr   []byte // the end of standard error alone
	// StdinLeft is how many bytes of standard input the program has not read,
	// where there was a Talk; -1 where that cannot be known.
	StdinLeft int
	// What the program and those of its children that it waited for used.
	CPU         time.Duration
	MaxRSSBytes int64
	// Left are processes of the program that could not be ended, most often those of another user.
	Left []LeftProcess
}

// LeftProcess is a process that could not be ended.
type LeftProcess struct {
	PID  int
	Name string // of its program, as it has chosen it
	User string // name or number
}

// String names it for people.
func (l LeftProcess) String() string { return fmt.Sprintf("%d (%q of user %s)", l.PID, l.Name, l.User) }

// leftProcess is a LeftProcess as a shim tells it.
type leftProcess struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	UID  uint32 `json:"uid"`
}

// named finds the users' names.
func named(left []leftProcess) []LeftProcess {
	var all []LeftProcess
	for _, process := range left {
		one := LeftProcess{PID: process.PID, Name: process.Name, User: strconv.FormatUint(uint64(process.UID), 10)}
		if account, err := user.LookupId(one.User); err == nil {
			one.User = account.Username
		}
		all = append(all, one)
	}
	return all
}
