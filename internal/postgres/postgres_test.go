package postgres

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// Goal: a server of the zero Config works, and leaves nothing behind.
func TestStartStop(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: map[string]string{"work_mem": "5MB", "port": "1"}})
	require.Nil(t, s.Owner())
	require.NotEmpty(t, s.Version())
	url := s.URL("postgres")
	require.Equal(t, "off", ask[string](t, url, "show fsync"))
	require.Equal(t, "5MB", ask[string](t, url, "show work_mem"))
	require.Equal(t, "UTF8", ask[string](t, url, "show server_encoding"))
	require.Empty(t, ask[string](t, url, "show listen_addresses"))

	info, err := os.Stat(s.folder.socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	pid := s.PID()
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Wait(t.Context()))
	require.Zero(t, s.PID())
	requireGone(t, pid)
	require.NoDirExists(t, s.folder.path)
	require.ErrorIs(t, s.Relaunch(t.Context()), errStopped)
	require.ErrorIs(t, s.Kill(), errDown)
}

// Goal: the data and the URL of a lasting server are the same the next time,
// whatever its path looks like.
func TestLastingFolder(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"plain":                      "data",
		"spaces and signs":           "a b/100% +&=? ü",
		"comma and quotes":           `it's, "quoted"`,
		"pattern":                    "a[b]*",
		"too long for a socket path": strings.Repeat("long/", 25),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(publicDir(t), path)
			s := start(t, Config{DataDir: dir, Durable: true})
			t.Cleanup(func() { require.NoError(t, os.RemoveAll(s.folder.socket)) })
			url := s.URL("postgres")
			require.Equal(t, "on", ask[string](t, url, "show fsync"))
			execute(t, url, "create table kept as select 42 as answer")
			require.NoError(t, s.Stop(t.Context()))

			s = start(t, Config{DataDir: dir})
			require.Equal(t, url, s.URL("postgres"))
			require.Equal(t, 42, ask[int](t, url, "select answer from kept"))
			require.NotContains(t, readLog(t, dir), "recovery")
		})
	}
}

// Goal: libpq understands the URL as pgx does, spaces included.
func TestURLForLibpq(t *testing.T) {
	t.Parallel()
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("no psql on this machine")
	}
	s := start(t, Config{DataDir: filepath.Join(publicDir(t), "a b +&")})
	out, err := exec.Command(psql, s.URL("postgres"), "-Atc", "select 1").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Equal(t, "1\n", string(out))
}

// Goal: after a crash, with a session that is too busy to notice, the server
// comes back under its URL with all that was committed.
func TestRelaunch(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	url := s.URL("postgres")
	execute(t, url, "create table kept as select 42 as answer")
	for name, end := range map[string]func() error{"kill": s.Kill, "halt": s.Halt} {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		cut := make(chan error, 1)
		go func() {
			_, err := conn.Exec(context.Background(), "do $$ declare until timestamptz := clock_timestamp() + interval '1 s'; begin while clock_timestamp() < until loop end loop; perform pg_sleep(60); end $$")
			cut <- err
		}()
		require.Eventually(t, func() bool {
			return ask[bool](t, url, "select exists (select from pg_stat_activity where query like 'do $$%' and state = 'active')")
		}, 5*time.Minute, 10*time.Millisecond, name)

		require.ErrorIs(t, s.Relaunch(t.Context()), errUp)
		require.NoError(t, end(), name)
		require.Zero(t, s.PID())
		require.NoError(t, s.Relaunch(t.Context()), name)
		require.Error(t, <-cut, name)
		require.Equal(t, 42, ask[int](t, url, "select answer from kept"), name)
	}
	require.NoError(t, s.Kill())
	require.NoError(t, s.Stop(t.Context()), "a killed server can be stopped for good")
	require.NoDirExists(t, s.folder.path)
}

// Goal: Wait ends when the server dies by itself, and Relaunch brings it back.
func TestWait(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	brief, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Wait(brief), context.DeadlineExceeded)
	require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	require.NoError(t, s.Wait(t.Context()))
	require.Zero(t, s.PID())
	require.NoError(t, s.Relaunch(t.Context()))
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "select 1"))
}

// Goal: Stop ends the server also when there is no time, or it does not react.
func TestStopByForce(t *testing.T) {
	t.Parallel()
	for name, freeze := range map[string]bool{"no time": false, "frozen": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, Config{})
			pid := s.PID()
			if freeze {
				require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, s.Stop(ctx), ErrForced)
			requireGone(t, pid)
			require.NoDirExists(t, s.folder.path)
		})
	}
}

// Goal: of processes that start in one new folder at once, one makes and runs
// the server, and all can use it.
func TestStartTogether(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	const starters = 4
	servers, errs := make([]*Server, starters), make([]error, starters)
	var group sync.WaitGroup
	for i := range starters {
		group.Go(func() { servers[i], errs[i] = Start(t.Context(), Config{DataDir: dir}) })
	}
	group.Wait()
	var owner *Server
	for i, s := range servers {
		require.NoError(t, errs[i])
		require.Equal(t, 1, ask[int](t, s.URL("postgres"), "select 1"))
		if s.Owner() == nil {
			require.Nil(t, owner, "two owners")
			owner = s
		} else {
			require.Equal(t, os.Getpid(), s.Owner().PID)
			require.NoError(t, s.Stop(t.Context()))
		}
	}
	require.NotNil(t, owner)
	require.Equal(t, 1, ask[int](t, owner.URL("postgres"), "select 1"), "others' Stop leaves it alone")
	require.NoError(t, owner.Stop(t.Context()))
}

// Goal: a folder that holds something else is refused and left as it is.
func TestForeignFolder(t *testing.T) {
	t.Parallel()
	dir := publicDir(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "PG_VERSION"), []byte("15\n"), 0o600))
	_, err := Start(t.Context(), Config{DataDir: dir})
	require.ErrorContains(t, err, "not a folder that jobq made")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// Goal: data of another version are not touched, and the message names it.
func TestOtherVersion(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	require.NoError(t, start(t, Config{DataDir: dir}).Stop(t.Context()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("8\n"), 0o600))
	_, err := Start(t.Context(), Config{DataDir: dir})
	require.ErrorContains(t, err, "PostgreSQL 8 made the data")
}

// Goal: a setting that the server refuses ends the start, with its words.
func TestBadSetting(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{Settings: map[string]string{"work_mem": "lots"}})
	require.ErrorContains(t, err, "the server ended at once")
	require.ErrorContains(t, err, "work_mem")
}

// Goal: what a killed start or a restarted machine leaves is no hindrance.
// Method: a half-made cluster, and a postmaster.pid with the pid of a live
// process of the same user.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	account, err := serverAccount()
	require.NoError(t, err)
	other := exec.Command("sleep", "60")
	other.Dir, other.SysProcAttr = "/", &syscall.SysProcAttr{Credential: account.credential}
	require.NoError(t, other.Start())
	t.Cleanup(func() {
		require.NoError(t, other.Process.Kill())
		_ = other.Wait() // killed
	})

	s := start(t, Config{DataDir: dir})
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.Rename(filepath.Join(dir, "data"), filepath.Join(dir, "data.partial")))
	s = start(t, Config{DataDir: dir})
	require.NoDirExists(t, filepath.Join(dir, "data.partial"))
	content, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))

	lines := strings.SplitN(string(content), "\n", 2)
	stale := strconv.Itoa(other.Process.Pid) + "\n" + lines[1]
	for _, path := range []string{"data/postmaster.pid", "run/.s.PGSQL.5432.lock"} {
		path = filepath.Join(dir, path)
		require.NoError(t, os.WriteFile(path, []byte(stale), 0o600))
		require.NoError(t, account.give(path))
	}
	s = start(t, Config{DataDir: dir})
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "select 1"))
}
