// Package examples runs the examples as a reader would.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Each example runs to its end and says what it should.
func TestExamples(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for name, want := range map[string][]string{
		"quickstart":    {"send the receipt of order 7, once for job 1", "completed  default  send_receipt"},
		"sql":           {"9   completed  default  greet"},
		"gotransaction": {"charged 20 orders, each once"},
		"python":        {`"be": 2`, "attempt 2 goes on at word 3", "something broke", "exit code 65: args have no text"},
		"shell":         {"go on after 3 files", "killed by SIGKILL", `{"files": 6, "attempts": 2}`},
		"stream-python": {`{"score": -2}`, "args have no text", "501"},
		"node":          {"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", `{"charged": 12}`, "snoozed after", "HTTP 400: args have no amount"},
		"archives":      {"image.tar.xz", "text.tar.xz", "exit code 65: ", "broken.tar.gz: not in gzip format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := run(t, binaries, name, nil)
			for _, text := range want {
				require.Contains(t, out, text)
			}
		})
	}
}

// build makes jobq, and returns the folder that it is in.
func build(t *testing.T) (binaries string) {
	t.Helper()
	binaries = t.TempDir()
	out, err := exec.Command("go", "build", "-o", binaries, "../cmd/jobq").CombinedOutput()
	require.NoError(t, err, string(out))
	return binaries
}

// run runs an example on a database of its own, and returns what it has written.
func run(t *testing.T, binaries, name string, environ []string, args ...string) string {
	t.Helper()
	command := exec.Command(filepath.Join(name, "run.sh"), args...)
	command.Env = append(append(os.Environ(), environ...), "DATABASE_URL="+pgtest.URL(t), "PATH="+binaries+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// withoutDriversVariable names the environment variable with which a machine admits that
// Python or Node have no driver for PostgreSQL there.
const withoutDriversVariable = "JOBQ_TEST_WITHOUT_DRIVERS"

// A program in each language charges each customer once, and has the job completed, also
// when it is killed before or after its commit.
func TestCompleteInEachLanguage(t *testing.T) {
	t.Parallel()
	binaries := build(t)
	for language, driver := range map[string]struct {
		programs []string // of which one has the driver
		check    string
		install  string
	}{
		"shell":  {[]string{"sh"}, "psql --version", "apt-get install postgresql-client"},
		"python": {[]string{"python3", "/usr/bin/python3"}, "import psycopg", "apt-get install python3-psycopg"},
		"node":   {[]string{"node"}, "require('pg')", "npm --prefix examples/complete ci"},
	} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			program := ""
			for _, candidate := range driver.programs {
				option := "-c"
				if language == "node" {
					option = "-e"
				}
				look := exec.Command(candidate, option, driver.check) // #nosec G204 -- of the table above
				look.Dir = "complete"
				if program == "" && look.Run() == nil {
					program = candidate
				}
			}
			if program == "" && os.Getenv(withoutDriversVariable) != "" {
				t.Skipf("NOT CHECKED: %s has no driver for PostgreSQL here", language)
			}
			require.NotEmpty(t, program, "%s, or set %s=1 where there is none to be had", driver.install, withoutDriversVariable)
			var environ []string
			if language == "python" {
				environ = []string{"PYTHON=" + program}
			}
			require.Contains(t, run(t, binaries, "complete", environ, language), language+": 3 jobs completed, 3 payments for 3 jobs")
		})
	}
}
