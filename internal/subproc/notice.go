package subproc

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// noticeSignals are those that a program can catch, and that mean nothing else to its supervisor.
func noticeSignals() map[string]syscall.Signal {
	return map[string]syscall.Signal{
		"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT, "SIGHUP": syscall.SIGHUP, "SIGQUIT": syscall.SIGQUIT,
		"SIGUSR1": syscall.SIGUSR1, "SIGUSR2": syscall.SIGUSR2,
	}
}

// NoticeSignal is the signal of that name, such as SIGUSR1, for Command.Notice.
func NoticeSignal(name string) (syscall.Signal, error) {
	signals := noticeSignals()
	if number, isSignal := signals[name]; isSignal {
		return number, nil
	}
	var names []string
	for name := range signals {
		names = append(names, name)
	}
	slices.Sort(names)
	return 0, fmt.Errorf("signal %q: must be one of %s", name, strings.Join(names, ", "))
}

// SignalName is the name of a signal as Result.Signal has it.
func SignalName(number syscall.Signal) string { return signalName(number) }
