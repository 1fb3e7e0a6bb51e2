package measure

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"time"
)

const (
	// tick is the unit of CPU times in /proc: USER_HZ, which Linux never changes.
	tick = 10 * time.Millisecond
	// familyTries bounds how often a family is read until none of it ended
	// meanwhile. One reading takes a few milliseconds, and a child that has used
	// less than a tick does not count: even a busy server is still sooner or later.
	familyTries = 20
	// reaping is the state of a process between its end and its disappearance,
	// when its time may be among its parent's already.
	reaping = "X"
)

// Process is what /proc/PID/stat says about one, as far as measurements need it.
type Process struct {
	// Name is that of its program, cut to 15 bytes. It may contain anything.
	Name string
	// State is a letter, such as S for one that sleeps.
	State string
	// Parent is the id of the process that it is a child of.
	Parent int
	// Own is the CPU time that the process has used itself, and Reaped what
	// those of its children have that have ended and that it has waited for.
	// Both count in hundredths of a second.
	Own, Reaped time.Duration
}

// ReadProcess is an error for a process that has ended, is hidden from us or
// cannot be read, and on systems without /proc: what is not known is not zero.
func ReadProcess(pid int) (Process, error) { return readProcess(os.DirFS("/proc"), pid) }

func readProcess(proc fs.FS, pid int) (Process, error) {
	content, err := fs.ReadFile(proc, path.Join(strconv.Itoa(pid), "stat"))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	p, err := parseStat(string(content))
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return p, nil
}

// parseStat reads the content of /proc/PID/stat.
func parseStat(content string) (Process, error) {
	// The name stands in parentheses and may contain anything, parentheses too.
	open, end := strings.IndexByte(content, '('), strings.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return Process{}, fmt.Errorf("no name in %q", content)
	}
	fields := strings.Fields(content[end+1:])
	if len(fields) < 15 {
		return Process{}, fmt.Errorf("no CPU times in %q", content)
	}
	var numbers [15]int // by field: those that are needed
	for _, field := range []int{1, 11, 12, 13, 14} {
		var err error
		if numbers[field], err = strconv.Atoi(fields[field]); err != nil {
			return Process{}, fmt.Errorf("field %d after the name: %w", field, err)
		}
	}
	return Process{
		Name: content[open+1 : end], State: fields[0], Parent: numbers[1],
		Own: time.Duration(numbers[11]+numbers[12]) * tick, Reaped: time.Duration(numbers[13]+numbers[14]) * tick,
	}, nil
}

// postmasterOf is the process that started a backend, or 0 when the pid is
// that of a PostgreSQL elsewhere, such as in another container.
func postmasterOf(proc fs.FS, backend int) int {
	p, err := readProcess(proc, backend)
	if err != nil || !strings.HasPrefix(p.Name, "postgres") {
		return 0
	}
	if parent, err := readProcess(proc, p.Parent); err != nil || !strings.HasPrefix(parent.Name, "postgres") {
		return 0
	}
	return p.Parent
}

// familyCPU is the CPU time of a process and its children, with those that
// have ended. A child that is reaped between the look at its parent and that at
// itself is in neither: then all is read again. When a child has ended in each
// of familyTries, the largest reading is the one that lacks least.
func familyCPU(proc fs.FS, parent int) time.Duration {
	most := time.Duration(0)
	for range familyTries {
		total, settled := readFamily(proc, parent)
		most = max(most, total)
		if settled {
			return total
		}
	}
	return most
}

// readFamily is what a family has used, and whether no child was reaped while
// it was read.
func readFamily(proc fs.FS, parent int) (total time.Duration, settled bool) {
	before, err := readProcess(proc, parent)
	if err != nil {
		return 0, true
	}
	total, settled = before.Own+before.Reaped, true
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return total, true
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		child, err := readProcess(proc, pid)
		switch {
		case err != nil || child.Parent != parent:
		case child.State == reaping:
			settled = false
		default:
			total += child.Own
		}
	}
	after, err := readProcess(proc, parent)
	return total, settled && (err != nil || after.Reaped == before.Reaped)
}
