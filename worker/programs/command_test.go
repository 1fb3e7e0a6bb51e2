package programs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// A run that is silent for too long is stopped as timed out; one that writes or
// reports goes on. A kind's timeout is for jobs that have none.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	for kind, script := range map[string]string{
		"silent":   "sleep 1000",
		"writes":   "for i in $(seq 50); do echo $i; sleep 0.2; done",
		"reports":  `for i in $(seq 50); do echo '{"progress": 1}' >&3; sleep 0.2; done`,
		"too-long": "while :; do echo x; sleep 0.05; done",
	} {
		options := worker.HandleOptions{StallTimeout: 8 * time.Second} // as long as a busy machine may hold up a script
		switch kind {
		case "silent":
			options.StallTimeout = time.Second
		case "too-long":
			options.Timeout = 300 * time.Millisecond
		}
		require.NoError(t, p.HandleCommand(kind, shellCommand(script), &options))
	}
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	silent, writes, reports := enqueueRaw(t, client, "silent", "{}", once), enqueueRaw(t, client, "writes", "{}", once), enqueueRaw(t, client, "reports", "{}", once)
	tooLong := enqueueRaw(t, client, "too-long", "{}", once)
	require.Contains(t, awaitState(t, client, silent, jobq.StateFailed).LastError, "no output and no progress for 1s")
	require.Equal(t, jobq.OutcomeTimedOut, attempts(t, client, silent)[0].Outcome)
	require.Contains(t, awaitState(t, client, tooLong, jobq.StateFailed).LastError, "timed out")
	awaitState(t, client, writes, jobq.StateCompleted)
	awaitState(t, client, reports, jobq.StateCompleted)
}

// Parts of the job become words of the command, each one word whatever is in
// it; nothing else is replaced.
func TestTemplate(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleCommand("k", programs.Command{Args: []string{
		"printf", "[%s]", "${args.name}", "n=${args.a.n}", "${args.list}", "${job.id}/${job.kind}", "${HOME}", "$5 ${", "${args.name",
	}}, nil))
	run(t, w)
	id := enqueueRaw(t, client, "k", `{"name": "x; rm -rf $HOME \"${job.id}", "a": {"n": 1234567890123456789}, "list": [1, "b"]}`, nil)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, `[x; rm -rf $HOME "${job.id}][n=1234567890123456789][[1,"b"]][1/k][${HOME}][$5 ${][${args.name]`, attempts(t, client, id)[0].Output)
	for args, want := range map[string]string{
		`{}`:                   "needs args.",
		`[]`:                   "needs args.name",
		`{"name": {"a": 1}}`:   "needs args.a.n",
		`{"name": null}`:       "needs args.name",
		`{"name": "x", "a":1}`: "needs args.a.n",
	} {
		id := enqueueRaw(t, client, "k", args, nil)
		require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, want, args)
	}
}

// Jobs that say which program to run do so only where the worker allows it.
func TestExec(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleExec(programs.Command{Env: map[string]string{"A": "worker", "B": "worker"}}, nil))
	run(t, w)
	folder := t.TempDir()
	args, err := json.Marshal(map[string]any{
		"cmd": []string{"sh", "-c", `echo "$A $B $JOBQ_KIND ${args.x}"; pwd`}, "env": map[string]string{"A": "job", "JOBQ_KIND": "forged"}, "cwd": folder,
	})
	require.NoError(t, err)
	id := enqueueRaw(t, client, programs.ExecKind, string(args), &jobq.EnqueueOptions{MaxAttempts: 1})
	// The shell itself chokes on ${args.x}: it came as it is.
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "ad substitution")
	args, err = json.Marshal(map[string]any{"cmd": []string{"sh", "-c", `echo "$A $B $JOBQ_KIND"; pwd`}, "env": map[string]string{"A": "job", "JOBQ_KIND": "forged"}, "cwd": folder})
	require.NoError(t, err)
	id = enqueueRaw(t, client, programs.ExecKind, string(args), nil)
	awaitState(t, client, id, jobq.StateCompleted)
	require.Equal(t, "job worker exec\n"+folder+"\n", attempts(t, client, id)[0].Output)
	for _, bad := range []string{`{}`, `{"cmd": "ls"}`, `{"cmd": ["ls"], "shell": true}`, `{"cmd": []}`} {
		awaitState(t, client, enqueueRaw(t, client, programs.ExecKind, bad, nil), jobq.StateFailed)
	}
}

// What a program says of the uniqueness of a job that it adds is obeyed, or fails the attempt.
func TestEnqueueSaysUniqueness(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleStream("k", programs.Stream{Command: shellCommand(`
		while read -r line; do
			id=${line#*\"id\":}; args=${line#*\"args\":}
			echo "{\"enqueue\": {\"kind\": \"added\", \"args\": {\"x\": 1}, \"uniqueness\": ${args%%\}*}}}}"
			echo "{\"id\": ${id%%,*}, \"done\": true}"
		done`)}, nil))
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	for range 2 {
		awaitState(t, client, enqueueRaw(t, client, "k", `{"by": ["x"], "for": "30d"}`, once), jobq.StateCompleted)
	}
	added, err := client.List(context.Background(), jobq.Filter{Match: "kind:added"})
	require.NoError(t, err)
	require.Len(t, added.Jobs, 1)
	for uniqueness, want := range map[string]string{
		`{"by": ["x"], "window": "never"}`:     `uniqueness: window must be a duration such as "1h", not "never"`,
		`{"by": ["x"], "for": "0s"}`:           `uniqueness: for must be a duration such as "1h", not "0s"`,
		`{"by": ["y"]}`:                        "args have none of the fields",
		`{"by": ["x"], "on_conflict": "no"}`:   "on_conflict must be skip, replace or fail",
		`{"bye": ["x"]}`:                       `unknown field "bye"`,
		`{"by": ["x"], "on_conflict": "fail"}`: "is held by",
	} {
		require.Contains(t, awaitState(t, client, enqueueRaw(t, client, "k", uniqueness, once), jobq.StateFailed).LastError, want, uniqueness)
	}
}

// A drain gives a program all its grace before it gives the job back, also one that
// the job itself names.
func TestDrainObeysGrace(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"p", programs.ExecKind} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w := newWorker(t, client, worker.Config{DrainTimeout: -1})
			p := programs.New(w)
			begun, ended := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "ended")
			command := shellCommand(fmt.Sprintf(`trap "sleep 6; : > %s; exit 0" TERM; : > %s; while :; do sleep 0.1; done`, ended, begun))
			command.Grace = time.Minute
			args, err := json.Marshal(map[string]any{"cmd": command.Args})
			require.NoError(t, err)
			if kind == programs.ExecKind {
				require.NoError(t, p.HandleExec(command, nil))
			} else {
				require.NoError(t, p.HandleCommand(kind, command, nil))
			}
			r := run(t, w)
			id := enqueueRaw(t, client, kind, string(args), nil)
			require.Eventually(t, func() bool {
				_, err := os.Stat(begun)
				return err == nil
			}, patience, 5*time.Millisecond)
			require.NoError(t, r.drain())
			require.FileExists(t, ended)
			require.Zero(t, awaitState(t, client, id, jobq.StateAvailable).Attempts)
		})
	}
}

// What cannot work is refused when the handler is given, and not when a job comes.
func TestRefusedPrograms(t *testing.T) {
	t.Parallel()
	p := programs.New(newWorker(t, newClient(t), worker.Config{}))
	works := programs.Command{Args: []string{"true"}}
	uid := uint32(1)
	require.NoError(t, p.HandleCommand("twice", works, nil))
	for problem, err := range map[string]error{
		"command is empty":       p.HandleCommand("k", programs.Command{}, nil),
		"asked to end or frozen": p.HandleCommand("k", programs.Command{Args: works.Args, LostTerminates: true, LostFreezes: true}, nil),
		"grace must not be":      p.HandleExec(programs.Command{Grace: -time.Second}, nil),
		"processes must not be":  p.HandleStream("k", programs.Stream{Command: works, Processes: -1}, nil),
		"has one already":        p.HandleStream("twice", programs.Stream{Command: works}, nil),
		"kind is empty":          p.HandleCommand("", works, nil),
		"a group":                p.HandleCommand("k", programs.Command{Args: works.Args, Attributes: programs.Attributes{UID: &uid}}, nil),
		"slots must be":          p.HandleCommand("k", works, &worker.HandleOptions{Slots: -1}),
		"must be like http://12": p.HandleHTTP("h", programs.HTTP{URL: "ftp://x/"}, nil),
	} {
		require.ErrorContains(t, err, problem)
	}
}
