package programs_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// Whatever a kept process says that is no answer, its job ends with an error
// that names the line and what is wrong with it, the process is replaced, and
// the slot goes on. No job has a timeout.
func TestStreamUnreadable(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, programs.Stream{Processes: 1})
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	pid := func() string {
		id := enqueueStream(t, client, `{"id": ID, "done": true, "result": PID}`, "", nil)
		return string(awaitState(t, client, id, jobq.StateCompleted).Result)
	}
	before := pid()
	for _, test := range []struct{ say, do, text string }{
		{`{"id": ID, "done": true, "result": NaN}`, "", `invalid character 'N'`},
		{`{"progress": 5}` + "\n" + `{"id": ID, "snooze": 5}`, "", `line 2 of its answer cannot be understood: "{\"id\": `},
		{`{"id": ID, "snooze": "5"}`, "", `snooze must be a duration such as "10m"`},
		{`{"done": true}`, "", "id is missing"},
		{`{"id": ID}`, "", "does not end it"},
		{`{"id": ID, "done": false}`, "", "does not end it"},
		{`{"id": ID, "result": {"x": 1}}`, "", "does not end it"},
		{`{"id": "ID", "done": true}`, "", "cannot unmarshal string"},
		{`{"id": ID, "doen": true}`, "", `unknown field "doen"`},
		{"null", "", "not a JSON object"},
		{"print debugging", "", `"print debugging": not a JSON object`},
		{"", "long", "longer than 1048576 bytes"},
		{"", "flood", "longer than 1048576 bytes"},
	} {
		id := enqueueStream(t, client, test.say, test.do, once)
		job := awaitState(t, client, id, jobq.StateFailed)
		require.Contains(t, job.LastError, test.text)
		require.Contains(t, job.LastError, "handler process was killed: line ")
		require.Equal(t, 1, job.Attempts)
		after := pid()
		require.NotEqual(t, before, after, "the process that said %.80s was not replaced", test.say)
		before = after
	}
}

// A process that answers before it has read all of its job would take the rest
// for the next one: the answer counts, and the process is replaced.
func TestStreamAnswersUnread(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newStreamWorker(t, client, `read -n 100 job; id=${job#*\"id\":}; echo "{\"id\": ${id%%,*}, \"done\": true}"; sleep 1000`)
	run(t, w)
	for range 2 {
		id := enqueueStream(t, client, strings.Repeat("x", 900<<10), "", &jobq.EnqueueOptions{MaxAttempts: 1})
		awaitState(t, client, id, jobq.StateCompleted)
	}
}

// A kept process that dies is not blamed with what it has written about the
// jobs before.
func TestStreamDeathHasItsOwnWords(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, programs.Stream{Processes: 1})
	for range 20 {
		noisy := enqueueStream(t, client, "", "noise", nil)
		awaitState(t, client, noisy, jobq.StateCompleted)
		require.Contains(t, attempts(t, client, noisy)[0].Output, fmt.Sprint("noise of ", noisy))
		dies := enqueueStream(t, client, "", "exit", &jobq.EnqueueOptions{MaxAttempts: 1})
		job := awaitState(t, client, dies, jobq.StateFailed)
		require.Equal(t, fmt.Sprintf("handler process ended, exit code 7: job %d", dies), job.LastError)
		require.Equal(t, fmt.Sprintf("job %d\n", dies), attempts(t, client, dies)[0].Output)
	}
}

// The job that a kept process has in hand while it is found out for the job
// before, or that it never read, goes to another process and loses no attempt.
func TestStreamBlamesNoOtherJob(t *testing.T) {
	t.Parallel()
	for _, do := range []string{"twice", "end unread"} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w := startStream(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}}, programs.Stream{Processes: 1})
			var ids []int64
			for range 6 {
				ids = append(ids, enqueueStream(t, client, "", do, &jobq.EnqueueOptions{MaxAttempts: 1}))
			}
			for _, id := range ids {
				require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
			}
			require.Zero(t, w.Counts().Failed)
		})
	}
}

// A process that ends before it has read a byte of its first job is a handler that cannot be
// reached: no job is to blame, and all of them wait. When a process reads and answers, they run.
func TestStreamEndsAtOnce(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var log lines
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	p := programs.New(w)
	mended := filepath.Join(t.TempDir(), "mended")
	script := "test -e " + mended + ` || { echo 'no module named x' >&2; exit 3; }
		while read -r job; do id=${job#*'"id":'}; echo "{\"id\": ${id%%,*}, \"done\": true}"; done`
	require.NoError(t, p.HandleStream("s", programs.Stream{Command: programs.Command{Args: []string{"/bin/bash", "-c", script}}}, nil))
	run(t, w)
	var ids []int64
	for range 10 {
		ids = append(ids, enqueueStream(t, client, "", "", &jobq.EnqueueOptions{MaxAttempts: 1}))
	}
	require.Eventually(t, func() bool { return programs.Failures(p, "s") >= 3 }, patience, 5*time.Millisecond)
	require.Equal(t, 1, log.count("handler cannot be reached"))
	require.Contains(t, w.Health().Unreached["s"], "ended before it read a job, exit code 3: no module named x")
	require.Zero(t, log.count("handler can be reached again"), "a process that has started has not begun")
	require.NoError(t, os.WriteFile(mended, nil, 0o600))
	for _, id := range ids {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
		require.Empty(t, attempts(t, client, id))
	}
	require.Equal(t, 1, log.count("handler can be reached again"))
	require.Empty(t, w.Health().Unreached)
}

// A job that runs long in the process that came first after an outage keeps no other job
// of its kind waiting.
func TestStreamBackWithLongJob(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	folder := t.TempDir()
	script := "cd " + folder + `; mkdir one 2>/dev/null && exit 3
		while read -r job; do mkdir two 2>/dev/null && sleep 1000; id=${job#*'"id":'}; echo "{\"id\": ${id%%,*}, \"done\": true}"; done`
	require.NoError(t, p.HandleStream("s", programs.Stream{Command: programs.Command{Args: []string{"/bin/bash", "-c", script}, Grace: time.Millisecond}}, nil))
	run(t, w)
	enqueueStream(t, client, "", "", nil)
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(folder, "two"))
		return err == nil
	}, patience, 5*time.Millisecond)
	awaitState(t, client, enqueueStream(t, client, "", "", nil), jobq.StateCompleted)
}
