package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
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
	Do    string `json:"do"`     // how to end: "", fail, exit137, kill (the worker), escape (a child leaves, and kill the shim), leave (only that)
	Once  bool   `json:"once"`   // do so in the first run only
	Talk  string `json:"talk"`   // progress or checkpoint: sends that, all the time
}

// task is one run of a job, in a program.
type task struct {
	order
	folder     string
	job, token int64
	idem       string
	again      bool // it has had an attempt before
}

func (t task) note(what string) error {
	return check.Append(t.folder, check.Effects, check.Entry{Mono: monotonic(), PID: os.Getpid(), What: what, Key: t.Key, Job: t.job, Token: t.token, Idem: t.idem})
}

// work writes down that it lives, in a file outside of the database, for as long
// as it was told, and says to the worker what it was told to say.
func (t task) work(say io.Writer) error {
	if err := t.note("begin"); err != nil {
		return err
	}
	ms := t.Ms
	if t.again && t.MsTwo > 0 {
		ms = t.MsTwo
	}
	for end := time.Now().Add(time.Duration(ms) * time.Millisecond); time.Now().Before(end); {
		time.Sleep(min(time.Until(end), 50*time.Millisecond))
		switch t.Talk { // a worker that is gone does not listen
		case "progress":
			_, _ = fmt.Fprintf(say, "{\"progress\": 1, \"stage\": \"%d\"}\n", t.token)
		case "checkpoint":
			_, _ = fmt.Fprintf(say, "{\"checkpoint\": {\"token\": %d}}\n", t.token)
		}
		if ms > 1000 {
			if err := t.note("beat"); err != nil {
				return err
			}
		}
	}
	return nil
}

// readTask reads the job of a program that was started for it: the order from standard
// input, and the rest from the environment.
func readTask(folder string) (*task, error) {
	t := &task{folder: folder}
	if err := json.NewDecoder(io.LimitReader(os.Stdin, 1<<20)).Decode(&t.order); err != nil {
		return nil, err
	}
	var attempt int
	for name, value := range map[string]any{"JOBQ_JOB_ID": &t.job, "JOBQ_LEASE_TOKEN": &t.token, "JOBQ_ATTEMPT": &attempt} {
		if _, err := fmt.Sscan(os.Getenv(name), value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	t.again, t.idem = attempt > 1, os.Getenv("JOBQ_IDEMPOTENCY_KEY")
	return t, nil
}

// runProgram is what the jobs of kind task are: a program of their own for each
// run, which says which token it was started with.
func runProgram(folder string) error {
	t, err := readTask(folder)
	if err != nil {
		return err
	}
	control := os.NewFile(3, "control")
	does := !t.again || !t.Once
	if does && (t.Do == "escape" || t.Do == "leave") {
		if err := startEscaped(folder); err != nil {
			return err
		}
	}
	if err := t.work(control); err != nil {
		return err
	}
	if does {
		switch t.Do {
		case "fail":
			fmt.Fprintf(os.Stderr, "told to fail by token %d\n", t.token)
			os.Exit(1)
		case "exit137":
			os.Exit(137)
		case "kill":
			return killWorker()
		case "escape":
			return killShim()
		}
	}
	if err := t.note("end"); err != nil {
		return err
	}
	_, err = fmt.Fprintf(control, "{\"result\": {\"token\": %d}}\n", t.token)
	return err
}

// runFlow is what runs the jobs of kind flow: a program that is kept, and takes
// job after job. They succeed plainly: nothing but their leases says so.
func runFlow(folder string) error {
	jobs := json.NewDecoder(os.Stdin)
	for {
		var message struct {
			ID         int64  `json:"id"`
			Key        string `json:"idempotency_key"`
			Attempt    int    `json:"attempt"`
			LeaseToken int64  `json:"lease_token"`
			Args       order  `json:"args"`
		}
		switch err := jobs.Decode(&message); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		t := task{order: message.Args, folder: folder, job: message.ID, token: message.LeaseToken, idem: message.Key, again: message.Attempt > 1}
		if err := errors.Join(t.work(os.Stdout), t.note("end")); err != nil {
			return err
		}
		if _, err := fmt.Printf("{\"id\": %d, \"done\": true}\n", t.job); err != nil {
			return err
		}
	}
}

// killWorker kills the process above this program's supervisor.
func killWorker() error {
	if err := syscall.Kill(parentOf(os.Getppid()), syscall.SIGKILL); err != nil {
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
