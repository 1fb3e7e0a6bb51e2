package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU times in /proc: USER_HZ, which Linux never changes.
const tick = 10 * time.Millisecond

// process is what /proc says about one: its program, and the CPU time that it
// has used.
type process struct {
	name string
	used time.Duration
}

// readProcess is an error for a process that is not there, or cannot be read:
// what is not known is not zero.
func readProcess(pid int) (process, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(string(content))
	if err != nil {
		return process{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	return p, nil
}

// parseStat reads the content of /proc/PID/stat.
func parseStat(content string) (process, error) {
	// The name stands in parentheses and may contain anything, parentheses too.
	open, end := strings.IndexByte(content, '('), strings.LastIndexByte(content, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("no name in %q", content)
	}
	fields := strings.Fields(content[end+1:])
	if len(fields) < 13 {
		return process{}, fmt.Errorf("no CPU times in %q", content)
	}
	user, errUser := strconv.ParseInt(fields[11], 10, 64)
	system, errSystem := strconv.ParseInt(fields[12], 10, 64)
	return process{content[open+1 : end], time.Duration(user+system) * tick}, errors.Join(errUser, errSystem)
}

// readResident is the memory that a process has, in bytes.
func readResident(pid int) (int64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	bytes, err := parseResident(string(content))
	if err != nil {
		return 0, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	return bytes, nil
}

// parseResident reads the content of /proc/PID/status, which has no memory
// when the process has ended and nobody has waited for it yet.
func parseResident(content string) (int64, error) {
	_, rest, _ := strings.Cut(content, "\nVmRSS:")
	line, _, _ := strings.Cut(rest, "\n")
	kilobytes, ok := strings.CutSuffix(strings.TrimSpace(line), " kB")
	if !ok {
		return 0, errors.New("no resident memory")
	}
	count, err := strconv.ParseInt(kilobytes, 10, 64)
	return count << 10, err
}

// sessionTimes is what the server's processes have used, by their ids. It is
// an error when there are none, or when they are not on this machine: a cost
// that nobody has measured is not a low one.
func sessionTimes(pids []int32) (map[int32]time.Duration, error) {
	if len(pids) == 0 {
		return nil, errors.New("the UI has no session on the server that could be measured")
	}
	times := make(map[int32]time.Duration, len(pids))
	for _, pid := range pids {
		p, err := readProcess(int(pid))
		if err != nil {
			return nil, fmt.Errorf("CPU time of session %d: the server must be on this machine: %w", pid, err)
		}
		if !strings.HasPrefix(p.name, "postgres") { // the number is that of a process elsewhere
			return nil, fmt.Errorf("CPU time of session %d: the server must be on this machine, where that is %q", pid, p.name)
		}
		times[pid] = p.used
	}
	return times, nil
}
