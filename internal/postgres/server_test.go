package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/jobq-dev/jobq/internal/postgres"
)

// asServer makes the test binary a process that runs a server in the folder
// it names, to be killed by a test.
const asServer = "JOBQ_TEST_SERVER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(asServer); folder != "" {
		server, err := postgres.Start(context.Background(), postgres.Config{DataDir: folder})
		if err != nil {
			fmt.Fprintln(os.Stdout, "error", err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, "url", server.URL("postgres"))
		select {} // until it is killed
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, config postgres.Config) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func ask(url, sql string) (answer string, err error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	err = conn.QueryRow(ctx, sql).Scan(&answer)
	return answer, err
}

// A fresh server answers over its socket, and over TCP when asked for, and is
// gone without a trace after Stop.
func TestFreshServer(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		server, err := postgres.Start(context.Background(), postgres.Config{TCP: tcp, Settings: map[string]string{"work_mem": "7MB"}})
		require.NoError(t, err)
		workMem, err := ask(server.URL("postgres"), "show work_mem")
		require.NoError(t, err)
		require.Equal(t, "7MB", workMem)
		require.Equal(t, tcp, strings.Contains(server.URL("postgres"), "@127.0.0.1:"))
		folder, err := ask(server.URL("postgres"), "show data_directory")
		require.NoError(t, err)
		require.NoError(t, server.Stop(context.Background()))
		require.NoError(t, server.Stop(context.Background()), "a second stop does nothing")
		_, err = ask(server.URL("postgres"), "select ''")
		require.Error(t, err)
		require.NoFileExists(t, filepath.Join(folder, "PG_VERSION"))
	}
}

// Data outlive a crash and a stop, in a folder with blanks in its name. While
// one process has the folder, another is told so.
func TestLastingServer(t *testing.T) {
	t.Parallel()
	config := postgres.Config{DataDir: openFolder(t, "with blanks", "data"), Durable: true}
	server := start(t, config)
	_, err := ask(server.URL("postgres"), "create table t as select 'kept' as v")
	require.ErrorIs(t, err, pgx.ErrNoRows)
	_, err = postgres.Start(context.Background(), config)
	require.ErrorContains(t, err, fmt.Sprintf("in use by process %d", os.Getpid()))
	for _, end := range []func() error{server.Kill, server.Halt} {
		require.NoError(t, end())
		require.Error(t, end(), "it does not run")
		require.NoError(t, server.Relaunch(context.Background()))
		kept, err := ask(server.URL("postgres"), "select v from t")
		require.NoError(t, err)
		require.Equal(t, "kept", kept)
	}
	require.Error(t, server.Relaunch(context.Background()), "it runs")
	require.NoError(t, server.Stop(context.Background()))

	again := start(t, config)
	kept, err := ask(again.URL("postgres"), "select v from t")
	require.NoError(t, err)
	require.Equal(t, "kept", kept)
}

// openFolder is a folder below one that every user can enter, as a server
// that runs as another user needs it.
func openFolder(t *testing.T, names ...string) string {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "jobq-test-")
	require.NoError(t, err)
	require.NoError(t, os.Chmod(root, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	return filepath.Join(append([]string{root}, names...)...)
}

// A process that is killed with SIGKILL takes its server with it, and the next
// start finds the data in order.
func TestServerDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	folder := openFolder(t, "data")
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), asServer+"="+folder)
	out, err := owner.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, owner.Start())
	var word, url string
	_, err = fmt.Fscan(out, &word, &url)
	require.NoError(t, err)
	require.Equal(t, "url", word)
	pid, err := ask(url, "select pg_read_file('postmaster.pid', 0, 20)")
	require.NoError(t, err)
	pid, _, _ = strings.Cut(pid, "\n")
	require.NoError(t, owner.Process.Signal(syscall.SIGKILL))
	_ = owner.Wait()
	require.Eventually(t, func() bool { return exec.Command("kill", "-0", pid).Run() != nil }, 30*time.Second, 5*time.Millisecond)
	start(t, postgres.Config{DataDir: folder})
}

// Without a server on the machine, the error says what to install.
func TestNoBinaries(t *testing.T) {
	t.Setenv("JOBQ_PG_BIN", t.TempDir())
	_, err := postgres.Start(context.Background(), postgres.Config{})
	require.ErrorContains(t, err, "has no initdb and postgres")
	require.ErrorContains(t, postgres.ErrNoBinaries, "apt-get install postgresql")
}
