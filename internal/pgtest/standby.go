package pgtest

import (
	"context"
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

// StartStandby starts a streaming standby of the server, which ends with the test,
// and returns the folder of its socket, by which clients name it as their host.
func StartStandby(tb testing.TB, primary *postgres.Server) (host string) {
	tb.Helper()
	folder, err := os.MkdirTemp("", "jobq-standby")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(folder)) })
	owner := ServerUser(tb, folder)
	binaries, err := postgres.FindBinaries(context.Background())
	require.NoError(tb, err)
	command := func(program string, args ...string) *exec.Cmd {
		c := exec.CommandContext(context.Background(), program, args...) // #nosec G204 -- a program of PostgreSQL
		c.Dir, c.Env = "/", []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
		return c
	}
	data := filepath.Join(folder, "data")
	out, err := command(filepath.Join(binaries.Folder, "pg_basebackup"), "-h", filepath.Dir(primary.SocketFile()), "-U", "postgres", "-D", data, "-R", "-X", "stream", "-c", "fast").CombinedOutput()
	require.NoError(tb, err, string(out))
	// It ends when its standard input does, so that it outlives no test process,
	// however that one ends.
	server := command("sh", "-c", `"$0" "$@" & read end; kill -QUIT $!; wait`, filepath.Join(binaries.Folder, "postgres"), "-D", data, "-k", folder, "-c", "listen_addresses=", "-c", "max_connections=500",
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
