package measure

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which Linux never changes.
const tick = 10 * time.Millisecond

// process is a line of /proc/PID/stat, as far as it is needed here.
type process struct {
	name   string
	parent int
	// own is what the process has used, and reaped what children of its have
	// that have ended.
	own, reaped time.Duration
}

// readProcess is false for a process that has ended, is hidden from us, or on
// systems without /proc.
func readProcess(pid int) (process, bool) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat") // #nosec G304 -- a number
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
		name: string(content[open+1 : end]), parent: number(1),
		own: time.Duration(number(11)+number(12)) * tick, reaped: time.Duration(number(13)+number(14)) * tick,
	}, true
}

// postmasterOf is the process that started a backend, or 0 when the pid is
// that of a PostgreSQL elsewhere, such as in another container.
func postmasterOf(backend int) int {
	p, ok := readProcess(backend)
	if !ok || !strings.HasPrefix(p.name, "postgres") {
		return 0
	}
	if parent, ok := readProcess(p.parent); !ok || !strings.HasPrefix(parent.name, "postgres") {
		return 0
	}
	return p.parent
}

// familyCPU is the CPU time of a process and its children, with those that
// have ended: it never falls.
func familyCPU(parent int) time.Duration {
	p, ok := readProcess(parent)
	if !ok {
		return 0
	}
	total := p.own + p.reaped
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return total
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if child, ok := readProcess(pid); ok && child.parent == parent {
			total += child.own
		}
	}
	return total
}
