package subproc_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// busyVariable makes the test binary a worker that runs programs one after the
// other, several at a time, until it is killed. Its value marks all of them.
const busyVariable = "JOBQ_TEST_BUSY"

// trialsVariable is how often TestKilledAtRandom kills a worker.
const trialsVariable = "JOBQ_KILL_TRIALS"

// beBusy runs programs that fork in every way and ignore SIGTERM. Some end,
// so that shims are used again, and some have to be stopped.
func beBusy(mark string) {
	var s subproc.Supervisor
	var running sync.WaitGroup
	for slot := range 3 {
		running.Go(func() {
			for turn := 0; ; turn++ {
				command := shell(`trap '' TERM; sleep 1000 & (setsid sh -c 'trap "" TERM; sleep 1000 & sleep 1000' &); sleep 0.0` + strconv.Itoa(turn%4))
				command.Env = append(command.Env, mark)
				command.Grace = time.Millisecond
				ctx, cancel := context.WithCancel(context.Background())
				if slot == 0 {
					command.Args[2] += "; sleep 1000"
					time.AfterFunc(time.Duration(turn%4)*10*time.Millisecond, cancel)
				}
				if _, err := s.Run(ctx, command); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				cancel()
			}
		})
	}
	running.Wait()
}

// A worker that is killed at any moment takes everything with it.
// JOBQ_KILL_TRIALS=1000 takes some minutes, and nothing may be left a second
// after each kill. Not
// parallel: it counts shims without a worker, and other tests make some.
func TestKilledAtRandom(t *testing.T) {
	// The race detector makes the start of a shim slow, and with it its end.
	trials, patience := 15, patience
	if text := os.Getenv(trialsVariable); text != "" {
		var err error
		trials, err = strconv.Atoi(text)
		require.NoError(t, err)
		patience = time.Second
	}
	self, err := os.Executable()
	require.NoError(t, err)
	survivors, programs := 0, 0
	var slowest time.Duration
	for trial := range trials {
		mark := fmt.Sprintf("JOBQ_TEST_MARK=%d.%d", os.Getpid(), trial)
		worker := exec.Command(self)
		worker.Env = append(os.Environ(), busyVariable+"="+mark)
		require.NoError(t, worker.Start())
		<-time.After(20*time.Millisecond + rand.N(180*time.Millisecond))
		programs += len(marked(t, mark))
		require.NoError(t, worker.Process.Signal(syscall.SIGKILL))
		killed := time.Now()
		_ = worker.Wait()
		for len(marked(t, mark))+orphanShims(t, self) > 0 && time.Since(killed) < patience {
			<-time.After(time.Millisecond)
		}
		slowest = max(slowest, time.Since(killed))
		for _, pid := range marked(t, mark) {
			survivors++
			t.Logf("trial %d: process %d is left", trial, pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		survivors += orphanShims(t, self)
	}
	t.Logf("%d trials with %d processes: %d left after %s, the last gone after at most %s", trials, programs, survivors, patience, slowest.Round(time.Millisecond))
	require.Zero(t, survivors)
}

// marked are the processes with the mark in their environment, but for those
// that are dead and not yet reaped by whoever has adopted them.
func marked(t *testing.T, mark string) []int {
	t.Helper()
	var found []int
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(append([]byte{0}, content...), append([]byte{0}, mark+"\x00"...)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		found = append(found, pid)
	}
	return found
}

// orphanShims counts shims of this executable whose worker is gone.
func orphanShims(t *testing.T, self string) int {
	t.Helper()
	count := 0
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		folder := filepath.Dir(file)
		content, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(content, []byte("jobq-shim\x00")) {
			continue
		}
		executable, err := os.Readlink(folder + "/exe")
		status, statusErr := os.ReadFile(folder + "/status")
		if err == nil && statusErr == nil && executable == self && bytes.Contains(status, []byte("\nPPid:\t1\n")) {
			count++
		}
	}
	return count
}
