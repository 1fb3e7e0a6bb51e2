package main

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The worker, the janitor and jobq metrics each serve their own figures where they
// say, are ready, and end with them on a signal; an address that is taken is an error.
func TestMetricsCommands(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	address := ""
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"worker", "--run", "hello=cat", "--metrics-addr", "127.0.0.1:0"}, "jobq_worker_claimed_total 0\n"},
		{[]string{"worker", "--run", "hello=cat", "--metrics-addr", "127.0.0.1:0"}, "jobq_janitor_passes_total "},
		{[]string{"janitor", "--metrics-addr", "127.0.0.1:0"}, "jobq_janitor_reaped_total 0\n"},
		{[]string{"metrics", "--metrics-addr", "127.0.0.1:0"}, "jobq_up 1\n"},
	} {
		p := startProcess(t, append(test.args, "--database-url", url)...)
		p.awaitLog(t, "serving metrics")
		address = regexp.MustCompile(`address=(\S+)`).FindStringSubmatch(p.log.String())[1]
		require.Eventually(t, func() bool {
			code, _ := fetch(t, "http://"+address+"/readyz")
			return code == http.StatusOK
		}, patience, 5*time.Millisecond, "%v is not ready", test.args)
		_, body := fetch(t, "http://"+address+"/metrics")
		require.Contains(t, body, test.want)
		require.Contains(t, body, "\ngo_goroutines ")
	}
	require.Eventually(t, func() bool { // fsync is off on the server of the tests, which is critical
		_, body := fetch(t, "http://"+address+"/metrics")
		return regexp.MustCompile(`(?m)^jobq_doctor_findings\{severity="critical"\} [1-9]`).MatchString(body)
	}, patience, 10*time.Millisecond)
	_, stderr, code := invoke(t, "", "metrics", "--doctor-every", "9s", "--database-url", url)
	require.Equal(t, exitUsage, code, stderr)
	_, stderr, code = invoke(t, "", "metrics", "--metrics-addr", address, "--database-url", url)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "--metrics-addr "+address)
}

// Connections that strangers open and keep are bounded, and keep nobody
// from the metrics.
func TestMetricsServerIsBounded(t *testing.T) {
	t.Parallel()
	server := limitedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures") }))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	address := listener.Addr().String()
	var closed atomic.Int32
	for range 5 * metricsConnsMax {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // asks once and stays
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			closed.Add(1)
		}()
	}
	require.Eventually(t, func() bool { return closed.Load() >= 4*metricsConnsMax }, patience, 5*time.Millisecond)
	_, body := fetch(t, "http://"+address)
	require.Equal(t, "figures", body)
	require.NotZero(t, server.IdleTimeout)
	require.NotZero(t, server.WriteTimeout)
}

// A port alone is this machine's alone. Who wants others to read says so.
func TestMetricsAddress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, want string }{{"0", "127.0.0.1:"}, {"127.0.0.1:0", "127.0.0.1:"}, {"0.0.0.0:0", "[::]:"}, {":0", "[::]:"}} {
		var log syncBuffer
		stop, err := serveMetrics(t.Context(), test.given, http.NotFoundHandler(), slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		stop()
		require.Contains(t, log.String(), test.want)
	}
	require.Equal(t, "127.0.0.1:9400", newMetricsCommand(&app{}).Flag("metrics-addr").DefValue)
}

// A worker whose limit of open files does not suffice for all its slots says so.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	warnIfFewDescriptors(logger, map[string]int{"a": 10, "b": 5}, 300)
	require.Empty(t, log.String())
	warnIfFewDescriptors(logger, map[string]int{"a": 10, "b": 5}, 200)
	require.Contains(t, log.String(), "the limit of open files is low for so many slots")
}

func fetch(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}
