package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jobq-dev/jobq/internal/measure"
)

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
		p, err := measure.ReadProcess(int(pid))
		if err != nil {
			return nil, fmt.Errorf("CPU time of session %d: the server must be on this machine: %w", pid, err)
		}
		if !strings.HasPrefix(p.Name, "postgres") { // the number is that of a process elsewhere
			return nil, fmt.Errorf("CPU time of session %d: the server must be on this machine, where that is %q", pid, p.Name)
		}
		times[pid] = p.Own
	}
	return times, nil
}
