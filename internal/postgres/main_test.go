package postgres

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// helperEnv makes the test's program a process that runs a server: its value
// is the Config as JSON.
const helperEnv = "JOBQ_POSTGRES_TEST_HELPER"

func TestMain(m *testing.M) {
	if config := os.Getenv(helperEnv); config != "" {
		os.Exit(runHelper(config))
	}
	goleak.VerifyTestMain(m)
}

// report is what a helper says about its server.
type report struct {
	URL     string
	PID     int // of the postmaster
	Owner   *Owner
	Folder  string
	Account string
	Err     string
}

// runHelper starts a server, reports, and stops it when its input ends.
func runHelper(text string) int {
	var config Config
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		panic(err)
	}
	var said report
	s, err := Start(context.Background(), config)
	if err != nil {
		said.Err = err.Error()
	} else {
		said = report{URL: s.URL("postgres"), PID: s.PID(), Owner: s.Owner(), Folder: s.folder.path, Account: s.folder.account.name}
	}
	if err := json.NewEncoder(os.Stdout).Encode(said); err != nil || said.Err != "" {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
	if err := s.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// helper is a process with a server of its own.
type helper struct {
	report
	command *exec.Cmd
	stdin   io.WriteCloser
}

// startHelper starts one; change may be nil.
func startHelper(t *testing.T, config Config, change func(*exec.Cmd)) *helper {
	t.Helper()
	text, err := json.Marshal(struct {
		DataDir string
		TCP     bool
	}{config.DataDir, config.TCP})
	require.NoError(t, err)
	program, err := os.Executable()
	require.NoError(t, err)
	h := &helper{command: exec.Command(program)}
	h.command.Env = append(os.Environ(), helperEnv+"="+string(text))
	h.command.Stderr = os.Stderr
	if change != nil {
		change(h.command)
	}
	h.stdin, err = h.command.StdinPipe()
	require.NoError(t, err)
	stdout, err := h.command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, h.command.Start())
	t.Cleanup(func() {
		_ = h.stdin.Close() // closed already: fine
		_ = h.command.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(line, &h.report))
	require.Empty(t, h.Err)
	return h
}

// kill ends the helper as kill -9 does.
func (h *helper) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, h.command.Process.Kill())
	require.Error(t, h.command.Wait())
}

// requireGone waits for a process to end.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH }, 5*time.Minute, 10*time.Millisecond)
}

// publicDir is a folder that any user can enter, unlike t.TempDir.
func publicDir(t *testing.T) string {
	t.Helper()
	base := "/tmp"
	if freeBytes(memoryFolder) > memoryBytesMin {
		base = memoryFolder // clusters are made much faster there
	}
	dir, err := os.MkdirTemp(base, "jobq-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

// start starts a server that the test's end stops.
func start(t *testing.T, config Config) *Server {
	t.Helper()
	if testing.Verbose() {
		config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	config.InMemory = true
	s, err := Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

// ask runs a query that returns one value.
func ask[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	var value T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

// execute runs statements.
func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// readLog is what a lasting server has said.
func readLog(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	require.NoError(t, err)
	return string(content)
}
