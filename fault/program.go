package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/jobq-dev/jobq/fault/check"
)

// order is what a job's args tell the program to do.
type order struct {
	Key   string `json:"key"`
	Ms    int    `json:"ms"`     // how long to work
	MsTwo int    `json:"ms_two"` // how long from the second run on; 0: the same
	Do    string `json:"do"`     // how to end: "", fail, exit137, kill (the worker)
	Once  bool   `json:"once"`   // do so in the first run only
	Mute  bool   `json:"mute"`   // no result
	Talk  string `json:"talk"`   // progress or checkpoint: sends that, all the time
}

// runProgram is what the jobs of a run are: it writes down that it lives, in a
// file outside of the database, and says which token it was started with.
func runProgram(folder string) error {
	var o order
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(&o); err != nil {
		return err
	}
	job, err := strconv.ParseInt(os.Getenv("JOBQ_JOB_ID"), 10, 64)
	if err != nil {
		return err
	}
	token, err := strconv.ParseInt(os.Getenv("JOBQ_LEASE_TOKEN"), 10, 64)
	if err != nil {
		return err
	}
	again := token > 1
	note := func(what string) error {
		return check.Append(folder, check.Effects, check.Entry{Mono: monotonic(), PID: os.Getpid(), What: what, Key: o.Key, Job: job, Token: token})
	}
	if err := note("begin"); err != nil {
		return err
	}
	control := os.NewFile(3, "control")
	ms := o.Ms
	if again && o.MsTwo > 0 {
		ms = o.MsTwo
	}
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), 50*time.Millisecond))
		switch o.Talk { // a worker that is gone does not listen
		case "progress":
			_, _ = fmt.Fprintf(control, "{\"progress\": 1, \"stage\": \"%d\"}\n", token)
		case "checkpoint":
			_, _ = fmt.Fprintf(control, "{\"checkpoint\": {\"token\": %d}}\n", token)
		}
		if ms > 1000 {
			if err := note("beat"); err != nil {
				return err
			}
		}
	}
	if !again || !o.Once {
		switch o.Do {
		case "fail":
			fmt.Fprintf(os.Stderr, "told to fail by token %d\n", token)
			os.Exit(1)
		case "exit137":
			os.Exit(137)
		case "kill":
			return killWorker()
		}
	}
	if err := note("end"); err != nil {
		return err
	}
	if o.Mute {
		return nil
	}
	_, err = fmt.Fprintf(control, "{\"result\": {\"token\": %d}}\n", token)
	return err
}

// killWorker kills the process above this program's supervisor.
func killWorker() error {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(os.Getppid()), "stat"))
	if err != nil {
		return err
	}
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	worker, err := strconv.Atoi(fields[1])
	if err != nil {
		return err
	}
	if err := syscall.Kill(worker, syscall.SIGKILL); err != nil {
		return err
	}
	time.Sleep(time.Minute) // the supervisor is about to end this
	return nil
}

// monotonic is CLOCK_MONOTONIC, which all processes of a machine share.
func monotonic() time.Duration {
	var spec syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&spec)), 0); errno != 0 { // #nosec G103 -- the call's convention
		panic(errno)
	}
	return time.Duration(spec.Nano())
}
