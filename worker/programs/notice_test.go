package programs_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// told is what a program has copied of its notice.
type told struct {
	Reason      string
	SecondsLeft float64 `json:"seconds_left"`
	At          time.Time
}

// startTold runs a worker whose drain takes an hour unless its jobs, which a shell runs, end before: they hear of it at once.
func startTold(t *testing.T, client *jobq.Client, script string, change func(*programs.Command)) *running {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, DrainTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	command := shellCommand(script)
	command.Grace, command.TellsDrain = time.Minute, true
	if change != nil {
		change(&command)
	}
	require.NoError(t, p.HandleCommand("k", command, nil))
	return run(t, w)
}

func readTold(t *testing.T, path string) (message told) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &message), "%s", content)
	return message
}

// A program hears of a drain as soon as it begins, with the reason and the time that it has, and can end well within it:
// the worker does not wait for the hour that it had.
func TestProgramHearsOfDrain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		signal syscall.Signal
		end    string // what the program does then
		want   jobq.State
	}{
		"goes back":       {0, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 75`, jobq.StateAvailable},
		"as a shell says": {0, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 143`, jobq.StateAvailable},
		"another signal":  {syscall.SIGUSR1, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 75`, jobq.StateAvailable},
		"dies of it":      {syscall.SIGUSR2, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; trap - USR2; kill -USR2 $$`, jobq.StateAvailable},
		"completes":       {0, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 0`, jobq.StateCompleted},
		"fails":           {0, `echo "{\"checkpoint\": {\"at\": 7}}" >&3; exit 1`, jobq.StateScheduled},
	} {
		client := newClient(t)
		copied := filepath.Join(t.TempDir(), "notice.json")
		number := map[syscall.Signal]string{0: "TERM", syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2"}[test.signal]
		r := startTold(t, client, `[ ! -e "$JOBQ_NOTICE_FILE" ] || exit 9
			trap 'cp "$JOBQ_NOTICE_FILE" `+copied+`; `+test.end+`' `+number+`
			echo '{"stage": "up"}' >&3; while :; do sleep 0.02; done`, func(c *programs.Command) { c.DrainSignal = test.signal })
		id := enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{BackoffBase: time.Hour})
		awaitStage(t, client, id)
		require.NoError(t, r.drain(), name)
		message := readTold(t, copied)
		require.Equal(t, "drain", message.Reason, name)
		require.Greater(t, message.SecondsLeft, 3600.0, "the drain's time and the grace")
		require.LessOrEqual(t, message.SecondsLeft, 3660.0)
		job, err := client.Get(context.Background(), id)
		require.NoError(t, err)
		require.Equal(t, test.want, job.State, name)
		if test.want == jobq.StateAvailable {
			require.Zero(t, job.Attempts, name)
		}
		if test.want != jobq.StateCompleted {
			require.JSONEq(t, `{"at": 7}`, string(job.Checkpoint), name)
		}
	}
}

// The notice tells why a program is to end: timeout, stall, cancel and a drain whose time is over can be told apart.
func TestProgramHearsWhy(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"timeout", "stall", "cancel", "lock_lost"} {
		client := newClient(t)
		copied := filepath.Join(t.TempDir(), "notice.json")
		w, err := worker.New(client, &worker.Config{DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		command := shellCommand(`trap 'cp "$JOBQ_NOTICE_FILE" ` + copied + `.new; mv ` + copied + `.new ` + copied + `; exit 1' TERM; echo '{"stage": "up"}' >&3; while :; do sleep 0.02; done`)
		command.Grace, command.TellsDrain, command.LostTerminates = time.Minute, true, true
		options := &worker.HandleOptions{}
		switch reason {
		case "timeout":
			options.Timeout = 8 * time.Second // the script has set its trap by then; if not, a janitor gives it another attempt
		case "stall":
			options.StallTimeout = 8 * time.Second
		}
		require.NoError(t, programs.New(w).HandleCommand("k", command, options))
		run(t, w)
		id := enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{BackoffBase: time.Millisecond})
		awaitStage(t, client, id)
		switch reason {
		case "cancel":
			_, err := client.Cancel(context.Background(), id)
			require.NoError(t, err)
		case "lock_lost":
			_, err := client.Pool().Exec(context.Background(), "delete from jobq.lease")
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			_, err := os.Stat(copied)
			return err == nil
		}, patience, 2*time.Millisecond, reason)
		message := readTold(t, copied)
		require.Equal(t, reason, message.Reason)
		if reason != "lock_lost" { // a part of the lease
			require.InDelta(t, 60, message.SecondsLeft, 0.001, reason)
		}
	}
}

// Without TellsDrain, a program has no notice.
func TestNoNoticeUnlessWanted(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startTold(t, client, `[ -z "$JOBQ_NOTICE_FILE" ]`, func(c *programs.Command) { c.TellsDrain = false })
	awaitState(t, client, enqueueRaw(t, client, "k", "{}", &jobq.EnqueueOptions{MaxAttempts: 1}), jobq.StateCompleted)
}
