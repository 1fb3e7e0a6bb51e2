package programs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// startHTTP runs a worker whose jobs the function answers.
func startHTTP(t *testing.T, client *jobq.Client, answer http.HandlerFunc) {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	p := programs.New(w)
	require.NoError(t, p.HandleHTTP("h", programs.HTTP{URL: server.URL + "/jobs", Header: http.Header{"Authorization": {"Bearer secret"}}}, nil))
	run(t, w)
}

// serveText answers every request with this, and returns its URL.
func serveText(t *testing.T, code int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func enqueueHTTP(t *testing.T, client *jobq.Client, args string, options *jobq.EnqueueOptions) int64 {
	t.Helper()
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: "h", JSON: json.RawMessage(args)}, options)
	require.NoError(t, err)
	return enqueued.ID
}

// Each answer has the effect that the documentation promises.
func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	type answer struct {
		Code              int
		Type, Body, After string
	}
	client := newClient(t)
	var asked sync.Map // ids of jobs that have been asked for
	startHTTP(t, client, func(w http.ResponseWriter, r *http.Request) {
		var job struct {
			ID         int64
			Args       answer
			LeaseToken json.Number `json:"lease_token"`
			Key        string      `json:"idempotency_key"`
		}
		body, _ := io.ReadAll(r.Body)
		err := json.Unmarshal(body, &job)
		_, again := asked.LoadOrStore(job.ID, true)
		isNamed := strings.HasPrefix(job.Key, fmt.Sprintf("%d-1", job.ID)) && r.Header.Get("Idempotency-Key") == job.Key
		if err != nil || again || !isNamed || r.Header.Get("Jobq-Lease-Token") != job.LeaseToken.String() || r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Content-Type", job.Args.Type)
		if job.Args.After != "" {
			w.Header().Set("Retry-After", job.Args.After)
		}
		w.WriteHeader(job.Args.Code)
		_, _ = io.WriteString(w, job.Args.Body)
	})
	const isJSON, isText = "application/json; charset=utf-8", "text/plain"
	for _, test := range []struct {
		answer
		state    jobq.State
		attempts int
		text     string // in the result, the error or the output
	}{
		{answer{200, isJSON, `{"x": 1}`, ""}, jobq.StateCompleted, 0, `"x"`},
		{answer{200, isJSON, "\ufeff" + `{"x": 2}`, ""}, jobq.StateCompleted, 0, `"x"`},
		{answer{204, isJSON, "", ""}, jobq.StateCompleted, 0, ""},
		{answer{201, isText, "made it\x1b", ""}, jobq.StateCompleted, 0, "made it␛"},
		{answer{200, isJSON, `{"x"`, ""}, jobq.StateScheduled, 1, "is not"},
		{answer{302, isText, "", ""}, jobq.StateScheduled, 1, "HTTP 302"},
		{answer{400, isJSON, `{"discard": true, "error": "bad args"}`, ""}, jobq.StateFailed, 1, "HTTP 400: bad args"},
		{answer{404, isText, "no such page", ""}, jobq.StateScheduled, 1, "HTTP 404: no such page"},
		{answer{422, isJSON, `{"error": "perhaps later"}`, ""}, jobq.StateScheduled, 1, "perhaps later"},
		{answer{429, isText, "", "7200"}, jobq.StateScheduled, 0, ""},
		{answer{500, isJSON, `{"discard": true}`, ""}, jobq.StateScheduled, 1, "HTTP 500"},
		{answer{503, isText, "busy", ""}, jobq.StateScheduled, 1, "busy"},
		{answer{503, isText, "", "7200"}, jobq.StateScheduled, 0, ""},
		{answer{502, isText, "bad gateway", "7200"}, jobq.StateScheduled, 1, "bad gateway"},
	} {
		args, err := json.Marshal(test.answer)
		require.NoError(t, err)
		id := enqueueHTTP(t, client, string(args), &jobq.EnqueueOptions{BackoffBase: time.Second})
		var job *jobq.Job
		require.Eventually(t, func() bool {
			job, err = client.Get(context.Background(), id)
			return err == nil && job.LeaseToken > 0 && job.State != jobq.StateRunning
		}, patience, 2*time.Millisecond)
		runs := attempts(t, client, id)
		if len(runs) < 2 { // else the retry has begun
			require.Equal(t, test.state, job.State, test.answer)
			require.Equal(t, test.attempts, job.Attempts, test.answer)
		}
		said := string(job.Result)
		if len(runs) > 0 {
			said += runs[0].Error + runs[0].Output
		}
		require.Contains(t, said, test.text, test.answer)
		if test.After != "" {
			require.WithinDuration(t, time.Now().Add(2*time.Hour), job.RunAt, 10*time.Minute)
		}
	}
}

// A cancelled job closes its request.
func TestHTTPCancel(t *testing.T) {
	t.Parallel()
	client := newClient(t)
	begun, closed := make(chan struct{}), make(chan struct{})
	startHTTP(t, client, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // the server sees the client go only when it has read the request
		close(begun)
		<-r.Context().Done()
		close(closed)
	})
	id := enqueueHTTP(t, client, `{}`, nil)
	receive(t, begun, "the request")
	_, err := client.Cancel(context.Background(), id)
	require.NoError(t, err)
	receive(t, closed, "the end of the request")
	awaitState(t, client, id, jobq.StateCancelled)
}

// URLs that cannot be are refused.
func TestHTTPBadURL(t *testing.T) {
	t.Parallel()
	w, err := worker.New(newClient(t), nil)
	require.NoError(t, err)
	p := programs.New(w)
	for _, url := range []string{"", "127.0.0.1:80", "ftp://x/", "http://"} {
		require.ErrorContains(t, p.HandleHTTP("h", programs.HTTP{URL: url}, nil), "must be like")
	}
}
