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
	binaries := t.TempDir()
	build := exec.Command("go", "build", "-o", binaries, "../cmd/jobq")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	for name, want := range map[string][]string{
		"quickstart":    {"send the receipt of order 7, once for job 1", "completed  default  send_receipt"},
		"sql":           {"9   completed  default  greet"},
		"gotransaction": {"charged 20 orders, each once"},
		"python":        {`"be": 2`, "attempt 2 goes on at word 3", "something broke", "exit code 65: args have no text"},
		"shell":         {"go on after 3 files", "killed by SIGKILL", `{"files": 6, "attempts": 2}`},
		"stream-python": {`{"score": -2}`, "args have no text", "501"},
		"node":          {"2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", `{"charged": 12}`, "snoozed after", "HTTP 400: args have no amount"},
		"wait":          {" words in ", " files", "is failed: exit code", "exit code 7"},
		"archives":      {"image.tar.xz", "text.tar.xz", "exit code 65: ", "broken.tar.gz: not in gzip format"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(filepath.Join(name, "run.sh"))
			command.Env = append(os.Environ(), "DATABASE_URL="+pgtest.URL(t), "PATH="+binaries+":"+os.Getenv("PATH"))
			out, err := command.CombinedOutput()
			require.NoError(t, err, string(out))
			for _, text := range want {
				require.Contains(t, string(out), text)
			}
		})
	}
}
