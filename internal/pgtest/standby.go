package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// ServerProgram is the path of a program that comes with the server which the tests use. A server
// that JOBQ_PG_BIN names may come without all but initdb and postgres: the test is then skipped.
func ServerProgram(tb testing.TB, name string) string {
	tb.Helper()
	binaries, err := postgres.FindBinaries(tb.Context())
	require.NoError(tb, err)
	path := filepath.Join(binaries.Folder, name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && os.Getenv("JOBQ_PG_BIN") != "" {
		tb.Skipf("NOT CHECKED: there is no %s in JOBQ_PG_BIN", name)
	}
	return path
}

// StartStandby starts a streaming standby of the server, which ends with the test,
// and returns the folder of its socket, by which clients name it as their host.
func StartStandby(tb testing.TB, primary *postgres.Server) (host string) {
	tb.Helper()
	folder, err := os.MkdirTemp("", "jobq-standby")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(folder)) })
	owner := ServerUser(tb, folder)
	command := func(program string, args ...string) *exec.Cmd {
		c := exec.CommandContext(context.Background(), program, args...) // #nosec G204 -- a program of PostgreSQL
		c.Dir, c.Env = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
		return c
	}
	data := filepath.Join(folder, "data")
	out, err := command(ServerProgram(tb, "pg_basebackup"), "-h", filepath.Dir(primary.SocketFile()), "-U", "postgres", "-D", data, "-R", "-X", "stream", "-c", "fast").CombinedOutput()
	require.NoError(tb, err, string(out))
	// It ends when its standard input does, so that it outlives no test process,
	// however that one ends.
	server := command("sh", "-c", `"$0" "$@" & read end; kill -QUIT $!; wait`, ServerProgram(tb, "postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "max_connections=500",
		"-c", "max_prepared_transactions=10", "-c", "fsync=off") // the limits of config: a standby may not have lower ones
	logFile := filepath.Join(folder, "log")
	log, err := os.Create(logFile) // #nosec G304 -- in a folder of our own
	require.NoError(tb, err)
	server.Stdout, server.Stderr = log, log
	input, err := server.StdinPipe()
	require.NoError(tb, err)
	require.NoError(tb, server.Start())
	require.NoError(tb, log.Close())
	tb.Cleanup(func() {
		_ = input.Close()
		_ = server.Wait() // how it ended is in its log
	})
	require.Eventually(tb, func() bool {
		text, err := os.ReadFile(logFile) // #nosec G304 -- likewise
		return err == nil && strings.Contains(string(text), "ready to accept read-only connections")
	}, timeout, 5*time.Millisecond, "the standby does not start: see %s", logFile)
	return folder
}

// SocketURL is the database postgres of the servers that have their sockets in these
// folders, tried in this order.
func SocketURL(hosts ...string) string {
	return fmt.Sprintf("postgres://postgres@/postgres?host=%s", url.QueryEscape(strings.Join(hosts, ",")))
}
