package measure

import (
	"io/fs"
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

// process is a line of /proc/PID/stat, as far as it is needed here.
type process struct {
	name   string
	state  string
	parent int
	// own is what the process has used, and reaped what children of its have
	// that have ended.
	own, reaped time.Duration
}

// readProcess is false for a process that has ended, is hidden from us, or on
// systems without /proc, which proc is.
func readProcess(proc fs.FS, pid int) (process, bool) {
	content, err := fs.ReadFile(proc, path.Join(strconv.Itoa(pid), "stat"))
	if err != nil {
		return process{}, false
	}
	// The name stands in parentheses and may contain anything, parentheses too.
	open, end := strings.IndexByte(string(content), '('), strings.LastIndexByte(string(content), ')')
	if open < 0 || end < open {
		return process{}, false
	}
	fields := strings.Fields(string(content[end+1:]))
	if len(fields) < 15 {
		return process{}, false
	}
	number := func(field int) int {
		value, err := strconv.Atoi(fields[field])
		if err != nil {
			return 0 // the kernel writes numbers there
		}
		return value
	}
	return process{
		name: string(content[open+1 : end]), state: fields[0], parent: number(1),
		own: time.Duration(number(11)+number(12)) * tick, reaped: time.Duration(number(13)+number(14)) * tick,
	}, true
}

// postmasterOf is the process that started a backend, or 0 when the pid is
// that of a PostgreSQL elsewhere, such as in another container.
func postmasterOf(proc fs.FS, backend int) int {
	p, ok := readProcess(proc, backend)
	if !ok || !strings.HasPrefix(p.name, "postgres") {
		return 0
	}
	if parent, ok := readProcess(proc, p.parent); !ok || !strings.HasPrefix(parent.name, "postgres") {
		return 0
	}
	return p.parent
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
	before, ok := readProcess(proc, parent)
	if !ok {
		return 0, true
	}
	total, settled = before.own+before.reaped, true
	entries, err := fs.ReadDir(proc, ".")
	if err != nil {
		return total, true
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		child, ok := readProcess(proc, pid)
		switch {
		case !ok || child.parent != parent:
		case child.state == reaping:
			settled = false
		default:
			total += child.own
		}
	}
	after, ok := readProcess(proc, parent)
	return total, settled && (!ok || after.reaped == before.reaped)
}
