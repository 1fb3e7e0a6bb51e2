package subproc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
)

// launchName is the name under which this executable knows that it is to
// limit itself and then become a program.
const launchName = "jobq-launch"

// launchErrorFD takes the reason why a program did not start.
const launchErrorFD = streamCount

// Attributes are what a program has that its shim has not. The zero value
// changes nothing. They cost the start of one more process.
type Attributes struct {
	// UID and GID are who the program runs as; for a worker that runs as root.
	// There are no supplementary groups then. A UID needs a GID beside it. Another
	// worker may name only itself, which changes nothing.
	UID *uint32 `json:"uid,omitempty"`
	GID *uint32 `json:"gid,omitempty"`
	// Nice is the program's niceness: 19 runs when nobody else wants to. Zero is
	// the worker's.
	Nice int `json:"nice,omitempty"`
	// Limits are resource limits by the names in LimitNames, hard and soft alike.
	Limits map[string]uint64 `json:"limits,omitempty"`
}

// limits are the resource limits by name.
func limits() map[string]int {
	return map[string]int{
		"address_space": syscall.RLIMIT_AS, "core": syscall.RLIMIT_CORE, "cpu_seconds": syscall.RLIMIT_CPU, "data": syscall.RLIMIT_DATA,
		"file_size": syscall.RLIMIT_FSIZE, "open_files": syscall.RLIMIT_NOFILE, "stack": syscall.RLIMIT_STACK,
	}
}

// LimitNames are the names of resource limits. Sizes are in bytes.
func LimitNames() []string {
	names := make([]string, 0, len(limits()))
	for name := range limits() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (a *Attributes) isZero() bool {
	return a == nil || (a.UID == nil && a.GID == nil && a.Nice == 0 && len(a.Limits) == 0)
}

// Check refuses what would only fail when the program starts.
func (a *Attributes) Check() error {
	if a == nil {
		return nil
	}
	if a.UID != nil && a.GID == nil {
		return errors.New("a user without a group: the program would keep the worker's groups")
	}
	if os.Geteuid() != 0 && !a.isOurs() {
		return errors.New("only a worker that runs as root can run programs as another user or group")
	}
	for name := range a.Limits {
		if _, ok := limits()[name]; !ok {
			return fmt.Errorf("limit %q: must be one of %q", name, LimitNames())
		}
	}
	return nil
}

// launchArgs are the arguments that make this executable launch the program.
func launchArgs(a *Attributes, path string, args []string) ([]string, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return append([]string{launchName, base64.StdEncoding.EncodeToString(body), path}, args...), nil
}

// launch limits this process and makes it the program. It returns only when
// that has failed, and has told the shim.
func launch(args []string) {
	syscall.CloseOnExec(launchErrorFD)
	err := becomeProgram(args)
	told := os.NewFile(launchErrorFD, "launch")
	_ = json.NewEncoder(told).Encode(failureReport(err)) // the exit code says it too
	os.Exit(126)
}

func becomeProgram(args []string) error {
	if len(args) < 3 {
		return errors.New("launch: half of the arguments")
	}
	var a Attributes
	body, err := base64.StdEncoding.DecodeString(args[0])
	if err == nil {
		err = json.Unmarshal(body, &a)
	}
	if err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	if a.Nice != 0 {
		if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, a.Nice); err != nil {
			return fmt.Errorf("nice %d: %w", a.Nice, err)
		}
	}
	if err := a.changeUser(); err != nil {
		return err
	}
	for name, value := range a.Limits {
		if err := syscall.Setrlimit(limits()[name], &syscall.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit %s to %d: %w", name, value, err)
		}
	}
	path := args[1]
	err = syscall.Exec(path, args[2:], os.Environ()) // #nosec G204 G702 -- to run what it is told is its purpose
	return &os.PathError{Op: "exec", Path: path, Err: err}
}

// isOurs says whether the program runs as who this process is.
func (a *Attributes) isOurs() bool {
	return (a.UID == nil || int(*a.UID) == os.Geteuid()) && (a.GID == nil || int(*a.GID) == os.Getegid())
}

func (a *Attributes) changeUser() error {
	if (a.UID == nil && a.GID == nil) || (os.Geteuid() != 0 && a.isOurs()) {
		return nil // only root could drop groups
	}
	if a.GID != nil {
		if err := syscall.Setgroups([]int{}); err != nil {
			return fmt.Errorf("drop groups: %w", err)
		}
		if err := syscall.Setgid(int(*a.GID)); err != nil {
			return fmt.Errorf("gid %d: %w", *a.GID, err)
		}
	}
	if a.UID != nil {
		if err := syscall.Setuid(int(*a.UID)); err != nil {
			return fmt.Errorf("uid %d: %w", *a.UID, err)
		}
	}
	return dieWithParent() // a change of user has reset it
}
