package programs_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// asStreamHandler makes the test binary a handler process for streams.
const asStreamHandler = "as-stream-handler"

// handleStream does what each job's args say.
func handleStream() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4<<20)
	previous := int64(0)
	for lines.Scan() {
		var job struct {
			Jobq       int
			ID         int64
			Attempt    int
			LeaseToken int64           `json:"lease_token"`
			Checkpoint json.RawMessage `json:"checkpoint"`
			Args       struct{ Say, Do string }
		}
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil || job.Jobq != 1 {
			os.Exit(3)
		}
		said := strings.NewReplacer("ID", fmt.Sprint(job.ID), "PID", fmt.Sprint(os.Getpid()), "SAVED", string(job.Checkpoint)).Replace(job.Args.Say)
		fmt.Fprintln(os.Stderr, "job", job.ID)
		if said != "" {
			fmt.Println(said) //nolint:forbidigo // standard output is what it speaks on
		}
		switch job.Args.Do {
		case "exit":
			os.Exit(7)
		case "exit once":
			if job.Attempt == 1 {
				os.Exit(7)
			}
			fmt.Printf("{\"id\": %d, \"done\": true, \"result\": %s}\n", job.ID, job.Checkpoint) //nolint:forbidigo // likewise
		case "descriptor 3":
			if os.Getenv("JOBQ_CONTROL_FD") != "" {
				os.Exit(8)
			}
			_, _ = os.NewFile(3, "control").WriteString("{\"stage\": \"lost\"}\n")
			hang()
		case "hang":
			hang()
		case "long":
			fmt.Printf("{\"id\": %d, \"done\": true, \"result\": \"%s\"}\n", job.ID, strings.Repeat("x", 1<<20)) //nolint:forbidigo // likewise
		case "flood": // a line that does not end
			for {
				fmt.Print(strings.Repeat("x", 1<<16)) //nolint:forbidigo // likewise
			}
		case "noise":
			fmt.Fprintln(os.Stderr, "noise of", job.ID)
			fmt.Printf("{\"id\": %d, \"done\": true}\n", job.ID) //nolint:forbidigo // likewise
		case "twice": // the first time in a process it answers; later it answers for the job before
			fmt.Printf("{\"id\": %d, \"done\": true}\n", cmp.Or(previous, job.ID)) //nolint:forbidigo // likewise
		case "end unread": // once the next job is there
			fmt.Printf("{\"id\": %d, \"done\": true}\n", job.ID) //nolint:forbidigo // likewise
			awaitInput()
			os.Exit(0)
		case "sleep":
			_ = osexec.Command("sleep", "1000").Run()
		}
		previous = job.ID
	}
}

// hang waits to be killed. It waits for a timer, since Go ends a process in which nothing can wake any goroutine, unless it uses cgo.
func hang() { <-time.After(time.Hour) }

// awaitInput waits until there is something on standard input, and leaves it there.
func awaitInput() {
	wait := osexec.Command("/bin/bash", "-c", "until read -t 0; do sleep 0.01; done") // which reads nothing
	wait.Stdin = os.Stdin
	_ = wait.Run()
}

func startStream(t *testing.T, client *jobq.Client, config *worker.Config, stream programs.Stream) *running {
	t.Helper()
	config.Logger, config.NoJanitor = slog.New(slog.DiscardHandler), true
	w, err := worker.New(client, config)
	require.NoError(t, err)
	p := programs.New(w)
	self, err := os.Executable()
	require.NoError(t, err)
	stream.Args = []string{self, asStreamHandler}
	require.NoError(t, p.HandleStream("s", stream, nil))
	return run(t, w)
}

func enqueueStream(t *testing.T, client *jobq.Client, say, do string, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	args, err := json.Marshal(map[string]string{"say": say, "do": do})
	require.NoError(t, err)
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: "s", JSON: args}, options)
	require.NoError(t, err)
	return enqueued.ID
}

// Each reply that ends a job has the effect that the documentation promises.
func TestStreamReplies(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{}, programs.Stream{})
	for say, want := range map[string]struct {
		state    jobq.State
		attempts int
		text     string
	}{
		`{"id": ID, "done": true, "result": {"x": 1}}`:       {jobq.StateCompleted, 0, ""},
		`{"id": ID, "error": "why"}`:                         {jobq.StateScheduled, 1, "why"},
		`{"id": ID, "error": "why", "retry": "1h"}`:          {jobq.StateScheduled, 1, "why"},
		`{"id": ID, "error": "why", "retry": "30 minutes"}`:  {jobq.StateScheduled, 1, "why"},
		"\ufeff" + `{"id": ID, "error": "marked"}`:           {jobq.StateScheduled, 1, "marked"},
		`{"id": ID, "error": "bad args", "discard": true}`:   {jobq.StateFailed, 1, "bad args"},
		`{"id": ID, "snooze": "1h"}`:                         {jobq.StateScheduled, 0, ""},
		`{"id": ID, "snooze": "1d12h"}`:                      {jobq.StateScheduled, 0, ""},
		`{"id": ID, "cancel": "not needed"}`:                 {jobq.StateCancelled, 0, ""},
		"print debugging\n" + `{"id": ID, "done": true}`:     {jobq.StateScheduled, 1, "print debugging"},
		`{"doen": true}` + "\n" + `{"id": ID, "done": true}`: {jobq.StateScheduled, 1, "doen"},
		`{"id": 99999, "done": true}`:                        {jobq.StateScheduled, 1, "answered for job 99999"},
	} {
		id := enqueueStream(t, client, say, "", &jobq.EnqueueOptions{BackoffBase: time.Hour * 24 * 365})
		var job *jobq.Job
		require.Eventually(t, func() bool {
			var err error
			job, err = client.Get(context.Background(), id)
			return err == nil && job.State == want.state && job.LeaseToken > 0
		}, patience, 2*time.Millisecond, say)
		require.Equal(t, want.attempts, job.Attempts, say)
		require.Contains(t, job.LastError, want.text, say)
		if want.text == "print debugging" { // says what to do
			require.Contains(t, job.LastError, `line 1 of its answer cannot be understood: "print debugging": not a JSON object`)
			require.Contains(t, job.LastError, "write anything else to standard error")
		}
		if strings.Contains(say, "result") {
			require.JSONEq(t, `{"x": 1}`, string(job.Result))
		}
	}
}

// One process runs job after job; one that dies is replaced, and the next
// attempt goes on from the checkpoint.
func TestStreamProcesses(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}}, programs.Stream{Processes: 1})
	pid := func() string {
		id := enqueueStream(t, client, `{"id": ID, "done": true, "result": PID}`, "", nil)
		return string(awaitState(t, client, id, jobq.StateCompleted).Result)
	}
	first := pid()
	for range 5 {
		require.Equal(t, first, pid())
	}
	fails := enqueueStream(t, client, "", "exit", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, fails, jobq.StateFailed).LastError, "exit code 7")
	require.Contains(t, attempts(t, client, fails)[0].Output, fmt.Sprint("job ", fails))
	require.NotEqual(t, first, pid())

	resumes := enqueueStream(t, client, `{"checkpoint": {"at": 7}}`, "exit once", &jobq.EnqueueOptions{BackoffBase: time.Hour})
	require.Eventually(t, func() bool { // the first attempt has failed
		job, err := client.Get(context.Background(), resumes)
		return err == nil && job.Attempts == 1
	}, patience, 2*time.Millisecond)
	require.NoError(t, jobtest.Requeue(client, resumes))
	job := awaitState(t, client, resumes, jobq.StateCompleted)
	require.Equal(t, 1, job.Attempts)
	require.JSONEq(t, `{"at": 7}`, string(job.Result))

	// An answer that comes when nobody asked is never the next job's.
	twice := enqueueStream(t, client, `{"id": ID, "done": true}`+"\n"+`{"id": ID, "done": true}`, "", nil)
	awaitState(t, client, twice, jobq.StateCompleted)
	next := enqueueStream(t, client, "", "hang", &jobq.EnqueueOptions{Timeout: time.Second, MaxAttempts: 1})
	awaitState(t, client, next, jobq.StateFailed) // by its timeout, or because the process was found out
}

// A timeout ends the process that has the job with all that it has started,
// and no other.
func TestStreamTimeout(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	startStream(t, client, &worker.Config{Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}}, programs.Stream{Command: programs.Command{Grace: 100 * time.Millisecond}})
	slow := enqueueStream(t, client, "", "sleep", &jobq.EnqueueOptions{MaxAttempts: 1, Timeout: 300 * time.Millisecond})
	other := enqueueStream(t, client, `{"id": ID, "done": true, "result": PID}`, "", nil)
	pid := awaitState(t, client, other, jobq.StateCompleted).Result
	awaitState(t, client, slow, jobq.StateFailed)
	require.Equal(t, jobq.OutcomeTimedOut, attempts(t, client, slow)[0].Outcome)
	other = enqueueStream(t, client, `{"id": ID, "done": true, "result": PID}`, "", nil)
	require.Equal(t, pid, awaitState(t, client, other, jobq.StateCompleted).Result)
}

// A job that is taken away kills its process at once, and counts no attempt of
// the one that has it now.
func TestStreamLostLease(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	keepLeases(t, client, jobq.HeartbeatTicker)
	startStream(t, client, &worker.Config{}, programs.Stream{Command: programs.Command{Grace: time.Hour}})
	id := enqueueStream(t, client, `{"stage": "PID"}`, "hang", nil)
	var pid int
	require.Eventually(t, func() bool {
		job, err := client.Get(context.Background(), id)
		if err != nil || job.Progress == nil {
			return false
		}
		pid, err = strconv.Atoi(job.Progress.Stage)
		return err == nil
	}, patience, 2*time.Millisecond)
	require.NoError(t, pgtest.StealLeases(context.Background(), client.Pool(), "other", id))
	require.Eventually(t, func() bool { return !isAlive(pid) }, patience, 2*time.Millisecond)
	job, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	require.Equal(t, jobq.StateRunning, job.State)
	require.Zero(t, job.Attempts)
}

func isAlive(pid int) bool { return syscall.Kill(pid, 0) == nil }

// newStreamWorker is a worker with one slot, whose kept process is a script.
func newStreamWorker(t *testing.T, client *jobq.Client, script string) *worker.Worker {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleStream("s", programs.Stream{Command: programs.Command{Args: []string{"/bin/bash", "-c", script}}}, nil))
	return w
}
