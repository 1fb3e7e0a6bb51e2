package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

const (
	// httpBodyBytesMax bounds what is read of an answer: a result of the largest size.
	httpBodyBytesMax = 1 << 20
	// httpIdleMax bounds the connections kept for the next job.
	httpIdleMax = 256
	// presumeAfter is how long the one try of a kind that is away lasts before the
	// server is taken to be there, when the transport does not say.
	presumeAfter = 5 * time.Second
	// retryAfterMax bounds what an answer can ask for.
	retryAfterMax = 30 * 24 * time.Hour
)

// HTTP is a server that runs jobs: each is posted to the URL, and the answer
// says how it ended; docs/subprocess.md is the server's side of the contract.
type HTTP struct {
	// URL is where jobs are posted.
	URL string
	// Header is sent with each job, for instance to authorize the worker.
	Header http.Header
	// Transport does the requests. Default: one that keeps connections open, and
	// uses HTTP_PROXY and its like as every Go program does. One of your own should
	// return *net.OpError when it could not connect, as net/http does: then no
	// attempt is counted. Waiting for one of MaxConnsPerHost connections takes of
	// the job's time.
	Transport http.RoundTripper
}

// httpHandler is a handler of one kind.
type httpHandler struct {
	url    string
	header http.Header
	client *http.Client
}

// HandleHTTP makes the worker run jobs of a kind with an HTTP server.
func HandleHTTP(w *Worker, kind string, server HTTP) error {
	parsed, err := url.Parse(server.URL)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("handler of kind %q: URL %q: must be like http://127.0.0.1:8080/jobs", kind, server.URL)
	}
	transport := server.Transport
	if transport == nil {
		kept := http.DefaultTransport.(*http.Transport).Clone()
		kept.MaxIdleConns, kept.MaxIdleConnsPerHost = httpIdleMax, httpIdleMax
		transport = kept
	}
	handler := &httpHandler{url: server.URL, header: server.Header, client: &http.Client{
		Transport: transport,
		// A POST that is redirected becomes a GET, which is no job.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if err := w.handle(kind, handler.run); err != nil {
		return err
	}
	w.programs.clients = append(w.programs.clients, handler)
	return nil
}

func (h *httpHandler) close() { h.client.CloseIdleConnections() }

// run is the handler. The end of the context closes the request.
func (h *httpHandler) run(ctx context.Context, r *Run) error {
	body, err := r.message()
	if err != nil {
		return err
	}
	try, err := r.worker.absences.try(r.row.Kind)
	if err != nil {
		return err
	}
	defer try.end()
	var way route
	defer way.presume(try)()
	traced := httptrace.WithClientTrace(ctx, way.trace(try.reached))
	request, err := http.NewRequestWithContext(traced, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h.setHeader(request, r)
	response, err := h.client.Do(request)
	if err != nil {
		return noAnswer(ctx, try, err, way.isUnreachable(err))
	}
	defer func() { _ = response.Body.Close() }() // read, or not worth it
	try.reached()                                // a transport of the caller's may tell nothing else
	answer, err := io.ReadAll(io.LimitReader(response.Body, httpBodyBytesMax+1))
	if err != nil {
		return stopError(ctx, fmt.Errorf("read answer: %w", err))
	}
	return h.verdict(r, response, answer)
}

func (h *httpHandler) setHeader(request *http.Request, r *Run) {
	for name, values := range h.header {
		// In lower case, or net/http would itself send a job again, within the run,
		// when a connection breaks after the server has begun.
		if strings.HasSuffix(http.CanonicalHeaderKey(name), "Idempotency-Key") {
			name = strings.ToLower(name)
		}
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Jobq-Job-Id", strconv.FormatInt(r.row.ID, 10))
	request.Header.Set("Jobq-Lease-Token", strconv.FormatInt(r.row.LeaseToken, 10))
	request.Header.Set("Jobq-Attempt", strconv.Itoa(r.Attempt()))
	// The same key for every run of the job: servers that know the header run it once.
	request.Header["idempotency-key"] = []string{"jobq-" + strconv.FormatInt(r.row.ID, 10)} //nolint:canonicalheader // see above
}

// noAnswer is what the handler returns when there is no answer. A request that
// was surely never sent has not failed; neither has one whose job ran out of time
// before there was a connection.
func noAnswer(ctx context.Context, try *try, err error, unreachable bool) error {
	switch cause := context.Cause(ctx); {
	case unreachable && (cause == nil || errors.Is(cause, ErrTimedOut)):
		return try.failed(err)
	case !unreachable:
		try.reached()
	}
	return stopError(ctx, err)
}

// route is what is known of a request's way to its server. net/http may try
// again by itself, on another connection, when nothing was sent on the first.
type route struct{ asked, dialled, connected atomic.Bool }

// trace tells the route, and calls reached, which may be called several times,
// when there is a connection.
func (w *route) trace(reached func()) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.asked.Store(true)
			w.connected.Store(false)
		},
		DNSStart:     func(httptrace.DNSStartInfo) { w.dialled.Store(true) },
		ConnectStart: func(string, string) { w.dialled.Store(true) },
		GotConn: func(httptrace.GotConnInfo) {
			w.connected.Store(true)
			reached()
		},
	}
}

// presume makes a try count that has neither failed nor told of a connection for
// presumeAfter, as if it had reached the server, so that the kind's other jobs do
// not wait for its end: a transport of the caller's may tell nothing before the
// answer, and one with MaxConnsPerHost has it wait for another job's connection.
// Not so while it is seen to dial: hosts that do not answer at all take half a
// minute to fail. The function returned is to be called at the end.
func (w *route) presume(try *try) (stop func() bool) {
	if try.absence == nil {
		return func() bool { return false }
	}
	return time.AfterFunc(presumeAfter, func() {
		if !w.dialled.Load() {
			try.reached()
		}
	}).Stop
}

// isUnreachable says that the request was surely never sent: there was no
// connection for it, be it for want of an address, a listener, or a certificate.
func (w *route) isUnreachable(err error) bool {
	if w.asked.Load() {
		return !w.connected.Load()
	}
	var op *net.OpError // of a transport that does not tell
	return errors.As(err, &op) && op.Op == "dial"
}

// stopError is why the request was closed, or else what went wrong with it.
func stopError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// verdict is what the handler returns for an answer.
func (h *httpHandler) verdict(r *Run, response *http.Response, answer []byte) error {
	isJSON := isJSONType(response.Header.Get("Content-Type"))
	if code := response.StatusCode; code >= 200 && code < 300 {
		return keepAnswer(r, isJSON, answer)
	}
	var said struct {
		Error   string `json:"error"`
		Discard bool   `json:"discard"`
	}
	reason := excerpt.Of(printable.Text(string(answer)), errorTailBytes)
	if isJSON && json.Unmarshal(answer, &said) == nil && said.Error != "" {
		reason = said.Error
	}
	err := errors.New(withReason(fmt.Sprintf("HTTP %d", response.StatusCode), reason))
	after, hasAfter := retryAfter(response.Header.Get("Retry-After"), time.Now())
	switch {
	case said.Discard && response.StatusCode >= 400 && response.StatusCode < 500:
		return Discard(err)
	case hasAfter && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable):
		return Snooze(after) // it says that it has not begun
	case response.StatusCode == http.StatusTooManyRequests:
		return Snooze(tempFailDelay)
	case hasAfter:
		return Retry(after, err)
	}
	return err
}

// keepAnswer keeps what a server says of a job that has completed: JSON as its
// result, anything else as output.
func keepAnswer(r *Run, isJSON bool, answer []byte) error {
	switch {
	case !isJSON:
		r.keepOutput(answer)
		return nil
	case len(answer) == 0:
		return nil
	case len(answer) > httpBodyBytesMax:
		return fmt.Errorf("the answer is longer than %d bytes", httpBodyBytesMax)
	case !json.Valid(answer):
		return errors.New("the answer says that it is JSON, and is not")
	}
	return r.SetResult(json.RawMessage(answer))
}

func isJSONType(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == "application/json"
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		return time.Duration(min(seconds, int64(retryAfterMax/time.Second))) * time.Second, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), retryAfterMax), true
	}
	return 0, false
}
