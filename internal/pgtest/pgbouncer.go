package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

const (
	// pgBouncerVariable names another PgBouncer to test with than the machine's.
	pgBouncerVariable = "JOBQ_TEST_PGBOUNCER"
	pgBouncerPort     = 6432
)

// PgBouncer is a PgBouncer before one of the test servers, with a pool for each
// of its databases.
type PgBouncer struct {
	folder string
}

// StartPgBouncer runs a PgBouncer before the server of the database, until the
// test ends: with settings of the section [pgbouncer], such as pool_mode. Without
// a PgBouncer on the machine the test is skipped, unless JOBQ_TEST_REQUIRE has its name: see Missing.
func StartPgBouncer(tb testing.TB, databaseURL string, settings map[string]string) *PgBouncer {
	tb.Helper()
	program := pgBouncerProgram(tb)
	server, err := pgx.ParseConfig(databaseURL)
	require.NoError(tb, err)
	folder, err := os.MkdirTemp("", "jobq-pgbouncer")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(folder)) })
	owner := ServerUser(tb, folder)
	var config strings.Builder
	fmt.Fprintf(&config, "[databases]\n* = host=%s port=%d user=%s\n[pgbouncer]\n", server.Host, server.Port, server.User)
	fmt.Fprintf(&config, "listen_addr =\nlisten_port = %d\nunix_socket_dir = %s\nauth_type = any\nmax_client_conn = 1000\n", pgBouncerPort, folder)
	for name, value := range settings {
		fmt.Fprintf(&config, "%s = %s\n", name, value)
	}
	path := filepath.Join(folder, "config")
	require.NoError(tb, os.WriteFile(path, []byte(config.String()), 0o644))
	log, err := os.Create(filepath.Join(folder, "log"))
	require.NoError(tb, err)
	defer func() { require.NoError(tb, log.Close()) }()
	// It ends when its standard input does, so that it outlives no test process,
	// however that one ends.
	command := exec.CommandContext(context.Background(), "sh", "-c", `"$0" "$1" & read end; kill -KILL $!; wait`, program, path)
	input, err := command.StdinPipe()
	require.NoError(tb, err)
	command.Dir, command.Stdout, command.Stderr = "/", log, log
	command.SysProcAttr = &syscall.SysProcAttr{Credential: owner}
	require.NoError(tb, command.Start())
	tb.Cleanup(func() {
		_ = input.Close()
		_ = command.Wait() // how it ended is in its log
	})
	p := &PgBouncer{folder: folder}
	require.Eventually(tb, func() bool { return strings.Contains(p.log(), "process up") }, timeout, 5*time.Millisecond, "pgbouncer: %s", p.log())
	return p
}

// PgBouncerKeepsStatements says whether the machine's PgBouncer can keep prepared
// statements in transaction mode, as it can since 1.21.
func PgBouncerKeepsStatements(tb testing.TB) bool {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), pgBouncerProgram(tb), "--version").Output()
	require.NoError(tb, err)
	var major, minor int
	_, err = fmt.Sscanf(string(out), "PgBouncer %d.%d", &major, &minor)
	require.NoError(tb, err, string(out))
	return major > 1 || minor >= 21
}

func pgBouncerProgram(tb testing.TB) string {
	tb.Helper()
	if program := os.Getenv(pgBouncerVariable); program != "" {
		return program
	}
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // not all users' PATH has sbin
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	Missing(tb, "pgbouncer", "install PgBouncer (Debian: apt-get install pgbouncer)")
	tb.Skip("NOT CHECKED: jobq behind a pooler")
	return ""
}

func (p *PgBouncer) log() string {
	text, err := os.ReadFile(filepath.Join(p.folder, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// URL is the database, which the server of this PgBouncer has, through it.
func (p *PgBouncer) URL(tb testing.TB, databaseURL string) string {
	tb.Helper()
	server, err := pgx.ParseConfig(databaseURL)
	require.NoError(tb, err)
	return fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", server.User, url.PathEscape(server.Database), url.QueryEscape(p.folder), pgBouncerPort)
}

// ServerUser gives the folder to the user that servers run as, and returns it;
// nil when that is who runs the test.
func ServerUser(tb testing.TB, folder string) *syscall.Credential {
	tb.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	require.NoError(tb, err)
	uid, err := strconv.ParseUint(account.Uid, 10, 31)
	require.NoError(tb, err)
	gid, err := strconv.ParseUint(account.Gid, 10, 31)
	require.NoError(tb, err)
	require.NoError(tb, os.Chown(folder, int(uid), int(gid)))
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
