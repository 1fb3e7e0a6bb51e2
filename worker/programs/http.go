package programs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/worker"
)

// httpIdleMax bounds the connections kept for the next job.
const httpIdleMax = 256

// HTTP is a server that runs jobs: each is posted to the URL, and the answer
// says how it ended; docs/subprocess.md is the server's side of the contract.
type HTTP struct {
	// URL is where jobs are posted: http or https, with a host. Required.
	URL string
	// Header is sent with each job, for instance to authorize the worker. What
	// jobq sets itself wins. Default: nothing more.
	Header http.Header
	// Transport does the requests. Default: one that keeps connections open, and
	// uses HTTP_PROXY and its like as every Go program does. One of your own should
	// return *net.OpError when it could not connect, as net/http does: then no
	// attempt is counted. Waiting for one of MaxConnsPerHost connections takes of
	// the job's time.
	Transport http.RoundTripper
	// EndsItself says that the server ends its jobs itself, as Command.EndsItself does:
	// with the run_token of the job. Default: the answer ends the job.
	EndsItself bool
	// Steps says that the server does durable steps, as Command.Steps does. Default: its
	// jobs have no run_token.
	Steps bool
}

// httpHandler is a handler of one kind.
type httpHandler struct {
	programs *Programs
	url      string
	header   http.Header
	client   *http.Client
	rights   Command // EndsItself and Steps
	resets   resets
}

// HandleHTTP makes the worker run jobs of a kind with an HTTP server.
func (p *Programs) HandleHTTP(kind string, server HTTP, options *worker.HandleOptions) error {
	parsed, err := url.Parse(server.URL)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return fmt.Errorf("handler of kind %q: URL %q: must be like http://127.0.0.1:8080/jobs", kind, server.URL)
	}
	transport := server.Transport
	if transport == nil {
		kept := http.DefaultTransport.(*http.Transport).Clone()
		kept.MaxIdleConns, kept.MaxIdleConnsPerHost = httpIdleMax, httpIdleMax
		watchDials(kept)
		transport = kept
	}
	h := &httpHandler{programs: p, url: server.URL, header: server.Header, rights: Command{EndsItself: server.EndsItself, Steps: server.Steps}, client: &http.Client{
		Transport: transport,
		// A POST that is redirected becomes a GET, which is no job.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	p.clients = append(p.clients, h.client)
	return p.handle(kind, h.run, options)
}

// run is the handler. The end of the context closes the request.
func (h *httpHandler) run(ctx context.Context, run worker.ExternalRun, args []byte) error {
	h.rights.announce(run)
	body, err := encodeJob(run, args, h.rights.hasToken())
	if err != nil {
		return err
	}
	try, err := h.programs.breaker.Begin(run.Kind())
	if err != nil {
		return err
	}
	defer try.End()
	if try.IsSole() {
		h.client.CloseIdleConnections() // to servers that may be gone: only a new one tells
	}
	var way route
	defer way.presume(try)()
	traced := httptrace.WithClientTrace(ctx, way.trace(try.Reached))
	request, err := http.NewRequestWithContext(traced, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	h.setHeader(request, run)
	setTrace(ctx, run, request.Header)
	response, err := h.client.Do(request)
	if err != nil {
		isUnread := way.isUnread(err) && ctx.Err() == nil && h.resets.add(run.ID())
		return noAnswer(ctx, try, err, isUnread || way.isUnreachable(err))
	}
	h.resets.remove(run.ID())
	defer func() { _ = response.Body.Close() }() // read, or not worth it
	try.Reached()                                // a transport of the caller's may tell nothing else
	answer, err := io.ReadAll(io.LimitReader(response.Body, httpBodyBytesMax+1))
	if err != nil {
		return stopError(ctx, fmt.Errorf("read answer: %w", err))
	}
	return answerVerdict(run, response, bytes.TrimPrefix(answer, []byte("\ufeff"))) // some servers of Windows send a byte order mark
}

func (h *httpHandler) setHeader(request *http.Request, run worker.ExternalRun) {
	for name, values := range h.header {
		// In lower case, or net/http would itself send a job again, within the run,
		// when a connection breaks after the server has begun.
		if strings.HasSuffix(http.CanonicalHeaderKey(name), "Idempotency-Key") {
			name = strings.ToLower(name)
		}
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Jobq-Job-Id", strconv.FormatInt(run.ID(), 10))
	request.Header.Set("Jobq-Lease-Token", strconv.FormatInt(run.LeaseToken(), 10))
	request.Header.Set("Jobq-Attempt", strconv.Itoa(run.Attempt()))
	// The same key for every run of the job: servers that know the header run it once.
	request.Header["idempotency-key"] = []string{run.IdempotencyKey()} //nolint:canonicalheader // see above
}
