package main

import (
	"io"
	"net/http"
	"regexp"
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
		{[]string{"metrics", "--addr", "127.0.0.1:0"}, "jobq_up 1\n"},
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
	_, stderr, code = invoke(t, "", "metrics", "--addr", address, "--database-url", url)
	require.Equal(t, exitError, code)
	require.Contains(t, stderr, "--addr "+address)
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
