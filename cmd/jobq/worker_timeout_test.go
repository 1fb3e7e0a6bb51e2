package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// The timeout of a worker ends runs of the kinds that have none; the flag comes before the file, and 0s of a kind means
// none. Method: the program of the kind without a timeout takes ten times as long as the worker's timeout is.
func TestTimeoutOfTheWorker(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		file string
		args []string
	}{
		"file": {file: "timeout: 100ms"},
		"flag": {file: "timeout: 1h", args: []string{"--timeout", "100ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, folder := pgtest.URL(t), t.TempDir()
			pool := pgtest.Connect(t, url)
			require.NoError(t, os.WriteFile(folder+"/jobq.yaml", []byte(test.file+`
kinds:
  ends: {command: [sleep, "1000"]}
  stays: {command: [sleep, "1"], timeout: 0s}
`), 0o600))
			for _, kind := range []string{"stays", "ends"} {
				_, stderr, code := invoke(t, "", "enqueue", kind, "--database-url", url, "--max-attempts", "1")
				require.Zero(t, code, stderr)
			}
			_, stderr, code := invoke(t, "", append([]string{
				"worker", "--database-url", url, "--config", folder + "/jobq.yaml", "--exit-when-empty",
			}, test.args...)...)
			require.Zero(t, code, stderr)
			require.Equal(t, []string{"ends failed", "stays completed"},
				query[[]string](t, pool, "select array_agg(kind || ' ' || state order by kind) from jobq.job"))
			require.Equal(t, "timed_out", query[string](t, pool, "select outcome::text from jobq.attempt a join jobq.job j on j.id = a.job_id where j.kind = 'ends'"))
		})
	}
	_, stderr, code := invoke(t, "", "worker", "--run", "k=true", "--timeout", "0")
	require.Equal(t, exitUsage, code)
	require.Contains(t, stderr, "--timeout must be more than 0")
}
