package programs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// sayOnce is a program that says on descriptor 3 what the job's args say, and
// keepSaying a kept process that says it and then answers that the job is done. In
// what they say, ID stands for the job's id.
const (
	sayOnce    = `read -r args; say=${args#*\"say\": \"}; printf %s "${say%%\"*}" | base64 -d >&3`
	keepSaying = `while read -r job; do
		id=${job#*\"id\":}; id=${id%%,*}; say=${job#*\"say\":\"}
		printf %s "${say%%\"*}" | base64 -d | LC_ALL=C sed "s/ID/$id/g"
		printf '\n{"id": %s, "done": true}\n' "$id"
	done`
)

// answerRaw says it as the whole answer to an HTTP request, or as the body when it
// does not begin like one.
func answerRaw(w http.ResponseWriter, r *http.Request) {
	var job struct {
		ID   int64
		Args struct{ Say []byte }
	}
	_ = json.NewDecoder(r.Body).Decode(&job)
	_, _ = io.Copy(io.Discard, r.Body)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	answer := bytes.ReplaceAll(job.Args.Say, []byte("ID"), fmt.Append(nil, job.ID))
	if !bytes.HasPrefix(answer, []byte("HTTP/")) {
		code := []int{200, 400, 422, 429, 500, 503}[len(answer)%6]
		answer = fmt.Appendf(nil, "HTTP/1.1 %d Text\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n%s", code, answer)
	}
	_, _ = conn.Write(answer)
}

// sayings are where the fuzzer begins.
var sayings = []string{
	"", "\n\n", "{}", "null", "[]", "{", "\x00", "\xff\xfe", "print debugging", `{"id": ID, "done": true}`,
	`{"id": ID, "done": true, "result": {"x": 1}}`, `{"id": ID, "done": true, "result": NaN}`, `{"id": ID, "done": true, "result": "\u0000"}`,
	"{\"id\": ID, \"done\": true, \"result\": \"\xff\"}", `{"id": ID, "done": true, "result": 1e999999}`, `{"id": ID, "done": true, "result": "\ud800"}`,
	`{"id": ID, "done": true, "result": ` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + `}`, `{"result": 1e200000}`,
	`{"id": ID, "error": "why\u0000\u001b[31m"}`, `{"id": ID, "error": ""}`, `{"id": ID, "error": 5}`, `{"id": ID, "error": "w", "retry": "-1s"}`,
	`{"id": ID, "error": "w", "retry": "2562047h"}`, `{"id": ID, "error": "w", "discard": true}`, `{"id": ID, "discard": true}`,
	`{"id": ID, "snooze": 5}`, `{"id": ID, "snooze": "10m"}`, `{"id": ID, "snooze": "2562047h47m"}`, `{"id": ID, "snooze": "0s"}`, `{"snooze": "1h"}`,
	`{"id": ID, "cancel": "no\u0000t"}`, `{"cancel": "why"}`, `{"id": ID, "cancel": null}`, `{"done": true}`, `{"id": ID}`, `{"id": 1, "done": true}`,
	`{"id": 99999999999999999999, "done": true}`, `{"id": ID, "done": false}`, `{"id": ID, "doen": true}`, `{"ID": ID, "DONE": true}`,
	"{\"id\": ID, \"done\": true}\n{\"id\": ID, \"done\": true}", "{\"id\": ID, \"done\": true}\ngarbage",
	`{"progress": 1e39}`, `{"progress": -5}`, `{"progress": 1e38, "stage": "\u0000", "message": "\u202e"}`, `{"stage": "` + strings.Repeat("ä", 500) + `"}`,
	`{"checkpoint": null}`, `{"checkpoint": {"at": 1e300}}`, `{"checkpoint": 1e99999}`, `{"checkpoint": "\u0000"}`, `{"checkpoint": "` + strings.Repeat("x", 97<<10) + `"}`,
	`{"enqueue": {"kind": "other", "args": {}}}`, `{"enqueue": {"kind": ""}}`, `{"enqueue": {"kind": "o", "argz": 1}}`, `{"enqueue": {"kind": "o", "priority": 99999}}`,
	`{"enqueue": {"kind": "o", "run_at": "0000-00-00"}}`, `{"enqueue": {"kind": "o", "tags": ["\u0000"]}}`, `{"enqueue": {"kind": "o", "metadata": NaN}}`,
	"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
	"HTTP/9.9 999 ?\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", "HTTP/1.1 429 Later\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 503 Later\r\nRetry-After: -1\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\n\r\n{\"discard\": true, \"error\": \"\\u0000\"}", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n\"\\u0000\"",
}

// mutated are further beginnings, always the same: each is one of the sayings
// with some bytes changed, doubled or cut out.
func mutated(count int) []string {
	random := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- no secret
	var all []string
	for range count {
		text := []byte(sayings[random.IntN(len(sayings))])
		for range 1 + random.IntN(3) {
			at := random.IntN(len(text) + 1)
			switch rest := text[at:]; {
			case random.IntN(2) == 0 && len(rest) > 0:
				const changes = "{}[]\",:\\0eE-x\n\x00\xff"
				text[at] = changes[random.IntN(len(changes))]
			default:
				text = append(append(append([]byte{}, text[:at]...), text[random.IntN(at+1):at]...), rest[min(len(rest), random.IntN(4)):]...)
			}
		}
		all = append(all, string(text))
	}
	return all
}

// Whatever a handler says, over each of the protocols, its job ends, or goes on
// later; the worker, its slot and what runs next are none the worse. No job has a
// timeout here, that could end what waits for ever.
func FuzzHandlerSays(f *testing.F) {
	for _, text := range append(mutated(40), sayings...) {
		f.Add([]byte(text))
	}
	client, err := jobq.NewClient(pgtest.Pool(f), nil)
	require.NoError(f, err)
	w, err := worker.New(client, &worker.Config{NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 16}}, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f, err)
	p := programs.New(w)
	server := httptest.NewServer(http.HandlerFunc(answerRaw))
	f.Cleanup(server.Close)
	require.NoError(f, p.HandleCommand("p", programs.Command{Args: []string{"/bin/bash", "-c", sayOnce}}, nil))
	require.NoError(f, p.HandleStream("s", programs.Stream{Command: programs.Command{Args: []string{"/bin/bash", "-c", keepSaying}}}, nil))
	require.NoError(f, p.HandleHTTP("h", programs.HTTP{URL: server.URL}, nil))
	run(f, w)
	f.Fuzz(func(t *testing.T, said []byte) {
		t.Parallel() // the beginnings, that is: the fuzzer has processes of its own
		if len(said) > 512<<10 {
			t.Skip("args have a limit of their own")
		}
		ids := make(map[string]int64)
		for _, kind := range []string{"p", "s", "h"} {
			ids[kind] = enqueueSaying(t, client, kind, said, 1)
		}
		for kind, id := range ids {
			require.Eventually(t, func() bool {
				job, err := client.Get(context.Background(), id)
				return err == nil && job.LeaseToken > 0 && (job.State != jobq.StateRunning || job.Attempts > 0)
			}, patience, 2*time.Millisecond, "a job of kind %s is wedged by %.200q", kind, said)
			_, _ = client.Cancel(context.Background(), id) // it may be one that snoozes for no time, again and again
		}
		awaitState(t, client, enqueueSaying(t, client, "s", nil, 10), jobq.StateCompleted)
		require.Zero(t, w.Counts().Lost)
	})
}

func enqueueSaying(t *testing.T, client *jobq.Client, kind string, said []byte, maxAttempts int) int64 {
	t.Helper()
	args, err := json.Marshal(map[string][]byte{"say": said})
	require.NoError(t, err)
	options := &jobq.EnqueueOptions{MaxAttempts: maxAttempts, BackoffBase: jobtest.AtOnce, BackoffMax: jobtest.AtOnce}
	enqueued, err := client.Enqueue(context.Background(), jobq.RawArgs{Name: kind, JSON: args}, options)
	require.NoError(t, err)
	return enqueued.ID
}
