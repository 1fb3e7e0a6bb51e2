package programs_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// startLogged runs a worker with the handler h at the address, and returns its log.
func startLogged(t *testing.T, client *jobq.Client, address string) (*programs.Programs, *lines) {
	t.Helper()
	var log lines
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 4}}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: "http://" + address}, nil))
	run(t, w)
	return p, &log
}

// A connection that is reset before an answer has begun was closed by a server that has not read
// the request: the job goes back without an attempt, the first time. If its next request is reset
// too, that is an attempt, since the job may be what breaks the server. The kind waits meanwhile,
// and the log has one warning and one line when the handler is back, however often it is reset.
func TestHTTPReset(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	var good atomic.Bool
	var asked atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			head := make([]byte, 4<<10)
			_, _ = conn.Read(head)
			asked.Add(1)
			if good.Load() {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			} else {
				_ = conn.(*net.TCPConn).SetLinger(0) // what it has not read resets the connection
			}
			_ = conn.Close()
		}
	}()
	p, log := startLogged(t, client, listener.Addr().String())
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	poison := enqueueHTTP(t, client, "{}", once)
	job := awaitState(t, client, poison, jobq.StateFailed)
	require.Contains(t, job.LastError, "connection reset by peer")
	require.EqualValues(t, 2, asked.Load())
	require.Equal(t, 1, job.Attempts)

	innocent := enqueueHTTP(t, client, "{}", once)
	require.Eventually(t, func() bool { return programs.Failures(p, "h") >= 1 }, patience, time.Millisecond)
	good.Store(true)
	require.Zero(t, awaitState(t, client, innocent, jobq.StateCompleted).Attempts)
	require.Empty(t, attempts(t, client, innocent))
	require.Equal(t, log.count("handler cannot be reached"), log.count("handler can be reached again"))
}

// A server that restarts gracefully ends what it has begun, and takes nothing new. What it answers
// then does not say that it is back: there is one warning, and one line when the next one is there.
func TestHTTPGracefulRestart(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	var serve atomic.Pointer[http.HandlerFunc]
	listen := func(address string) (*http.Server, string) {
		var listener net.Listener
		require.Eventually(t, func() bool {
			var err error
			listener, err = net.Listen("tcp", address)
			return err == nil
		}, patience, time.Millisecond)
		server := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			(*serve.Load())(w, r)
		})}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return server, listener.Addr().String()
	}
	begun, proceed := make(chan struct{}, 4), make(chan struct{})
	slow := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-proceed
	})
	serve.Store(&slow)
	server, address := listen("127.0.0.1:0")
	p, log := startLogged(t, client, address)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	first := []int64{enqueueHTTP(t, client, "{}", once), enqueueHTTP(t, client, "{}", once)}
	for range first {
		receive(t, begun, "a request")
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Shutdown(context.Background()) }()
	waits := enqueueHTTP(t, client, "{}", once)
	require.Eventually(t, func() bool { return programs.Failures(p, "h") >= 2 }, patience, time.Millisecond)
	close(proceed)
	for _, id := range first {
		require.Zero(t, awaitState(t, client, id, jobq.StateCompleted).Attempts)
	}
	require.NoError(t, receive(t, ended, "the end of the first server"))
	require.Eventually(t, func() bool { return programs.Failures(p, "h") >= 4 }, patience, time.Millisecond)
	require.Equal(t, 1, log.count("handler cannot be reached"))
	require.Zero(t, log.count("handler can be reached again"))
	fast := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	serve.Store(&fast)
	listen(address)
	require.Zero(t, awaitState(t, client, waits, jobq.StateCompleted).Attempts)
	require.Equal(t, 1, log.count("handler cannot be reached"))
	require.Equal(t, 1, log.count("handler can be reached again"))
}

// Jobs that come all the time while their server restarts again and again lose no attempt to connections
// that were reset, and the log has at most one warning and one other line for each restart.
func TestHTTPRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	const restarts = 5
	client := newClient(t)
	server := newRestartable(t)
	server.start()
	p, log := startLogged(t, client, server.address)
	once := &jobq.EnqueueOptions{MaxAttempts: 1}
	var ids []int64
	for range restarts {
		for range 40 {
			ids = append(ids, enqueueHTTP(t, client, "{}", once))
		}
		require.NoError(t, server.server.Config.Shutdown(context.Background()))
		ids = append(ids, enqueueHTTP(t, client, "{}", once))
		require.Eventually(t, func() bool { return programs.Failures(p, "h") >= 1 }, patience, time.Millisecond)
		server.start()
	}
	for _, id := range ids {
		var job *jobq.Job
		require.Eventually(t, func() bool {
			var err error
			job, err = client.Get(context.Background(), id)
			return err == nil && (job.State == jobq.StateCompleted || job.State == jobq.StateFailed)
		}, patience, 2*time.Millisecond)
		if job.Attempts > 0 { // Go's server may have read a request on a connection that it is just closing
			require.Contains(t, job.LastError, "EOF")
		}
	}
	log.mu.Lock()
	defer log.mu.Unlock()
	require.LessOrEqual(t, strings.Count(log.text.String(), "reached"), 2*restarts, log.text.String())
}
