package programs_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// restartable is an HTTP server with an address of its own, which can go away
// and come back.
type restartable struct {
	t       *testing.T
	address string
	server  *httptest.Server
}

func newRestartable(t *testing.T) *restartable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &restartable{t: t, address: listener.Addr().String()}
	require.NoError(t, listener.Close())
	t.Cleanup(s.stop)
	return s
}

func (s *restartable) start() {
	s.t.Helper()
	var listener net.Listener
	require.Eventually(s.t, func() (ok bool) {
		var err error
		listener, err = net.Listen("tcp", s.address)
		return err == nil
	}, patience, 10*time.Millisecond)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	_ = s.server.Listener.Close()
	s.server.Listener = listener
	s.server.Start()
}

func (s *restartable) stop() {
	if s.server != nil {
		s.server.Close()
		s.server = nil
	}
}

// lines is a log in memory.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

// A handler that is not there costs no job an attempt, does not keep the slots
// from other kinds, and is not asked all the time; it is told of once, in the log
// and on the worker. When it is back, all jobs run.
func TestHTTPRestart(t *testing.T) {
	t.Parallel()
	const count = 30
	ctx := context.Background()
	client := newClient(t)
	server := newRestartable(t)
	var log lines
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 2}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: "http://" + server.address}, nil))
	require.NoError(t, worker.HandleRaw(w, "other", func(context.Context, *worker.Job[jobq.RawArgs]) error { return nil }, nil))
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	ids := make([]int64, count)
	for i := range ids {
		ids[i] = enqueueHTTP(t, client, "{}", once)
	}
	run(t, w)
	for range 10 {
		awaitState(t, client, enqueueRaw(t, client, "other", "{}", once), jobq.StateCompleted)
	}
	failures := func() int { return programs.Failures(p, "h") }
	require.Eventually(t, func() bool { return failures() >= 4 }, patience, 5*time.Millisecond)
	var claims int
	require.NoError(t, client.Pool().QueryRow(ctx, `select (select coalesce(sum(cardinality(job_ids)), 0) from jobq.lease)
		+ (select coalesce(sum(cardinality(ended)), 0) from jobq.past_lease)`).Scan(&claims))
	require.LessOrEqual(t, claims, 10+20*(failures()+1), "a few jobs for each pause, and not all of them again and again")
	require.Equal(t, 1, log.count("handler cannot be reached"))
	require.Eventually(t, func() bool {
		workers, err := monitor.New(client).Workers(ctx)
		return err == nil && strings.Contains(workers[0].Programs["h"].Trouble, "connection refused")
	}, patience, 20*time.Millisecond)

	server.start()
	for _, id := range ids {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
		require.Empty(t, attempts(t, client, id))
	}
	require.Equal(t, 1, log.count("handler can be reached again"))
	server.stop()
	id := enqueueHTTP(t, client, "{}", once)
	require.Eventually(t, func() bool { return failures() >= 1 }, patience, 5*time.Millisecond)
	server.start()
	require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
}

// What surely never reached the handler is no attempt: no address, no listener,
// no certificate, and no connection within the job's time. A request that was
// cut off may have been served, and is one.
func TestHTTPUnreachable(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(cut.Close)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	nobody := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done() // a host that does not answer
		return nil, ctx.Err()
	}}
	away := map[string]programs.HTTP{
		"no listener":    {URL: "http://127.0.0.1:1/"},
		"no address":     {URL: "http://no-such-host.invalid/"},
		"no certificate": {URL: secure.URL},
		"no answer":      {URL: "http://192.0.2.1/", Transport: nobody},
		"tells nothing":  {URL: "http://127.0.0.1:1/", Transport: silent{}},
	}
	for kind, server := range away {
		require.NoError(t, p.HandleHTTP(kind, server, nil))
	}
	require.NoError(t, p.HandleHTTP("cut", programs.HTTP{URL: cut.URL}, nil))
	run(t, w)
	ids := make(map[string]int64, len(away))
	for kind := range away {
		options := &jobq.EnqueueOptions{MaxAttempts: 1}
		if kind == "no answer" || kind == "no address" { // whose resolver may not answer either
			options.Timeout = time.Second
		}
		ids[kind] = enqueueRaw(t, client, kind, "{}", options)
	}
	for kind, id := range ids {
		require.Eventually(t, func() bool { return programs.Failures(p, kind) >= 2 }, patience, 5*time.Millisecond, kind)
		job, err := client.Get(context.Background(), id)
		require.NoError(t, err)
		require.Zero(t, job.Attempts, kind)
		require.Empty(t, attempts(t, client, id), kind)
	}
	id := enqueueRaw(t, client, "cut", "{}", &jobq.EnqueueOptions{MaxAttempts: 1})
	require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "EOF")
	require.Zero(t, programs.Failures(p, "cut"))
}

// mute is an error whose text panics.
type mute struct{}

func (mute) Error() string { panic("no words") }

// A transport's error whose text panics fails the job, or sends it back where it
// tells that there is no connection; the worker runs on.
func TestHTTPErrorThatPanics(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	broken := func(*http.Request) (*http.Response, error) { return nil, mute{} }
	refused := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: mute{}}
	}
	transport := &scripted{script: []func(*http.Request) (*http.Response, error){broken, refused}}
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: "http://127.0.0.1:1/", Transport: transport}, nil))
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	failed := awaitState(t, client, enqueueHTTP(t, client, "{}", once), jobq.StateFailed)
	require.Contains(t, failed.LastError, "PANIC=Error method: no words")
	awaitState(t, client, enqueueHTTP(t, client, "{}", once), jobq.StateCompleted)
}

// silent is a transport that tells nothing of its connections.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	return http.DefaultTransport.RoundTrip(r.WithContext(context.WithoutCancel(context.Background())))
}

// A program whose machine has no room for it, or that is not there, has not failed: it has
// not begun. The worker says so at its start, before a job comes, and is not ready. When the
// program is there, its jobs run. What a job itself names and does not exist is the job's fault.
func TestProgramCannotStart(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	busy := busyProgram(t)
	require.NoError(t, p.HandleCommand("busy", programs.Command{Args: []string{busy.path}}, nil))
	require.NoError(t, p.HandleStream("busy stream", programs.Stream{Command: programs.Command{Args: []string{busy.path}}}, nil))
	require.NoError(t, p.HandleCommand("busy nice", programs.Command{Args: []string{busy.path}, Attributes: programs.Attributes{Nice: 19}}, nil)) // whatever ours is
	run(t, w)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	ids := []int64{enqueueRaw(t, client, "busy", "{}", once), enqueueRaw(t, client, "busy nice", "{}", once)}
	stream := enqueueRaw(t, client, "busy stream", "{}", once)
	for _, kind := range []string{"busy", "busy stream", "busy nice"} {
		require.Eventually(t, func() bool { return programs.Failures(p, kind) >= 2 }, patience, 5*time.Millisecond, kind)
	}
	job, err := client.Get(context.Background(), stream)
	require.NoError(t, err)
	require.Zero(t, job.Attempts)
	require.Zero(t, programs.Deaths(p, "busy stream"), "no process has died")
	busy.release()
	for _, id := range ids {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	}
}

// A program that is not there, or may not be executed, has not begun. The worker says so
// at its start, before a job comes, and is not ready. When the program is there, the worker
// is ready again by itself, and the jobs run.
func TestProgramMissing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args   []string                // PROGRAM is the path that is not there yet
		change func(*programs.Command) // of what is handled
		appear func(path string) error // makes it right
		reason string
	}{
		"path":         {[]string{"PROGRAM"}, nil, writeProgram, "no such file"},
		"attributes":   {[]string{"PROGRAM"}, func(c *programs.Command) { c.Attributes.Nice = 19 }, writeProgram, "no such file"},
		"in PATH":      {[]string{"program"}, func(c *programs.Command) { c.Env = map[string]string{"PATH": "FOLDER"} }, writeProgram, "not found in PATH"},
		"working dir":  {[]string{"/bin/true"}, func(c *programs.Command) { c.Dir = "PROGRAM" }, func(path string) error { return os.Mkdir(path, 0o700) }, "chdir"},
		"relative":     {[]string{"./program"}, func(c *programs.Command) { c.Dir = "FOLDER" }, writeProgram, "no such file"},
		"not a binary": {[]string{"PROGRAM"}, nil, writeProgram, "permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			folder := t.TempDir()
			path := filepath.Join(folder, "program")
			if name == "not a binary" {
				require.NoError(t, os.WriteFile(path, nil, 0o600))
			}
			var log lines
			w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			p := programs.New(w)
			here := strings.NewReplacer("PROGRAM", path, "FOLDER", folder)
			command := programs.Command{Args: []string{here.Replace(test.args[0])}}
			if test.change != nil {
				test.change(&command)
				command.Dir = here.Replace(command.Dir)
				for name, value := range command.Env {
					command.Env[name] = here.Replace(value)
				}
			}
			require.NoError(t, p.HandleCommand("missing", command, nil))
			require.NoError(t, p.HandleStream("missing stream", programs.Stream{Command: command}, nil))
			require.Equal(t, 2, log.count("handler cannot be reached, its jobs wait"), "said at the start")
			require.Equal(t, 2, log.count(test.reason))
			problems := strings.Join(w.Health().Problems(), "\n")
			require.Contains(t, problems, "kind missing: its handler cannot be reached: ")
			require.Contains(t, problems, test.reason)

			run(t, w)
			once := &jobq.EnqueueOptions{MaxAttempts: 1}
			id, stream := enqueueRaw(t, client, "missing", "{}", once), enqueueRaw(t, client, "missing stream", "{}", once)
			for _, kind := range []string{"missing", "missing stream"} {
				require.Eventually(t, func() bool { return programs.Failures(p, kind) >= 3 }, patience, 5*time.Millisecond)
			}
			for _, id := range []int64{id, stream} {
				job, err := client.Get(context.Background(), id)
				require.NoError(t, err)
				require.Zero(t, job.Attempts)
				require.Empty(t, attempts(t, client, id))
			}
			require.Equal(t, 2, log.count("handler cannot be reached"))
			require.NoError(t, os.RemoveAll(path))
			require.NoError(t, test.appear(path))
			require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
		})
	}
}

func writeProgram(path string) error {
	return os.WriteFile(path, []byte("#!/bin/sh\nexit 0\n"), 0o700) //nolint:gosec // it is a program
}

// What a job itself names, and does not exist, is the job's fault: its kind goes on.
func TestJobNamesMissingProgram(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	w := newWorker(t, client, worker.Config{})
	p := programs.New(w)
	require.NoError(t, p.HandleExec(programs.Command{}, nil))
	require.NoError(t, p.HandleCommand("named", programs.Command{Args: []string{"${args.program}"}}, nil))
	run(t, w)
	require.Empty(t, w.Health().Unreached)
	for kind, args := range map[string]string{"exec": `{"cmd": ["/does/not/exist"]}`, "named": `{"program": "/does/not/exist"}`} {
		id := enqueueRaw(t, client, kind, args, &jobq.EnqueueOptions{MaxAttempts: 1})
		require.Contains(t, awaitState(t, client, id, jobq.StateFailed).LastError, "no such file")
	}
}

// scripted is a transport whose first requests end as the script says; the
// others are served.
type scripted struct {
	mu     sync.Mutex
	script []func(*http.Request) (*http.Response, error)
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	next := func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}
	if len(s.script) > 0 {
		next, s.script = s.script[0], s.script[1:]
	}
	s.mu.Unlock()
	return next(r)
}

func refuseRequest(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
}

// A try that ends in a panic, or does not end for long without a word of its
// way, keeps a kind from being claimed no longer than some seconds.
func TestTryTellsNothing(t *testing.T) {
	t.Parallel()
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	for name, try := range map[string]func(*http.Request) (*http.Response, error){
		"panic": func(*http.Request) (*http.Response, error) { panic("oops") },
		"silent": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"waits for another's connection": func(r *http.Request) (*http.Response, error) {
			httptrace.ContextClientTrace(r.Context()).GetConn("host")
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t)
			w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Millisecond})
			require.NoError(t, err)
			p := programs.New(w)
			require.NoError(t, p.HandleHTTP("h", programs.HTTP{
				URL: "http://127.0.0.1:1/", Transport: &scripted{script: []func(*http.Request) (*http.Response, error){refuseRequest, try}},
			}, nil))
			run(t, w)
			enqueueHTTP(t, client, "{}", once)
			enqueueHTTP(t, client, "{}", once)
			require.Eventually(t, func() bool {
				var completed int
				err := client.Pool().QueryRow(context.Background(), "select count(*) from jobq.job where state = 'completed'").Scan(&completed)
				return err == nil && completed == 1
			}, patience, 10*time.Millisecond, "the other job is kept back")
		})
	}
}

// Jobs that go back because their handler is away make nobody walk past all the
// jobs of their kind again.
func TestAwayIsQuiet(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	client := newClient(t)
	conn, err := client.Pool().Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	var channel string
	require.NoError(t, conn.QueryRow(ctx, "select jobq.channel('head')").Scan(&channel))
	_, err = conn.Exec(ctx, "listen "+channel)
	require.NoError(t, err)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: "http://127.0.0.1:1/"}, nil))
	run(t, w)
	enqueueHTTP(t, client, "{}", nil)
	require.Eventually(t, func() bool { return programs.Failures(p, "h") >= 4 }, patience, 5*time.Millisecond)
	_, err = client.Pool().Exec(ctx, "select pg_notify($1, 'the end')", channel)
	require.NoError(t, err)
	heard := 0
	for {
		note, err := conn.Conn().WaitForNotification(ctx)
		require.NoError(t, err)
		if note.Payload == "the end" {
			break
		}
		heard++
	}
	require.Zero(t, heard)
}
