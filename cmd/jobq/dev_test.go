package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A second jobq dev in the same folder says at once whose server it has joined, and that another folder starts another
// server. The first one says which folder it has. Method: both as processes, in a folder of the test.
func TestDevSaysWhatItJoins(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "dev") // the path of a socket is short
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) // #nosec G302 -- as root, the server runs as another user
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	folder := dir + "/data"
	first := startProcess(t, "dev", "--dir", folder)
	first.awaitLog(t, "PostgreSQL runs with jobq's tables in "+folder+", until Ctrl-C")
	require.NotContains(t, first.log.String(), "joined")
	second := startProcess(t, "dev", "--dir", folder)
	second.awaitLog(t, "joined the PostgreSQL that process ")
	second.awaitLog(t, " runs in "+folder+", with its jobs and workers: --dir FOLDER starts another one")
	second.awaitLog(t, "In another terminal")
	for _, p := range []*process{second, first} {
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
		_ = p.Wait()
	}
}
