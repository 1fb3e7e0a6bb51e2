package identity

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
)

func bootID() string {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "" // no /proc
	}
	return strings.TrimSpace(string(content))
}

func pidNamespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "" // no /proc
	}
	return name
}

// isGone says whether the process that had the pid, and started at that tick,
// has ended. The signal 0 is asked first: /proc may hide what others own.
func isGone(pid int, start int64) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return errors.Is(err, syscall.ESRCH)
	}
	since, state, ok := stat(pid)
	return ok && (since != start || state == 'Z' || state == 'X') // a zombie only waits to be counted
}

// stat reads when a process started, in clock ticks since boot, and its state,
// from fields 22 and 3 of /proc/PID/stat. The second is the name in brackets,
// which may have anything in it.
func stat(pid int) (start int64, state byte, ok bool) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) < 20 {
		return 0, 0, false
	}
	start, err = strconv.ParseInt(string(fields[19]), 10, 64)
	return start, fields[0][0], err == nil
}
