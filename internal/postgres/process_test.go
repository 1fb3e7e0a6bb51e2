package postgres

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Goal: kill -9 of the process that runs a server shuts the server down
// properly, and the next start is clean.
func TestOwnerKilled(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	h := startHelper(t, Config{DataDir: dir}, nil)
	execute(t, h.URL, "create table kept as select 42 as answer")
	h.kill(t)
	s := start(t, Config{DataDir: dir}) // which waits until the old one has ended
	requireGone(t, h.PID)
	require.Nil(t, s.Owner())
	require.Equal(t, h.URL, s.URL("postgres"))
	require.Equal(t, 42, ask[int](t, h.URL, "select answer from kept"))
	log := readLog(t, dir)
	require.Contains(t, log, "database system is shut down")
	require.NotContains(t, log, "not properly shut down")
}

// Goal: a second process uses the first one's server, knows whose it is,
// cannot end it, and notices its end.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(publicDir(t), "data")
	h := startHelper(t, Config{DataDir: dir, TCP: true}, nil)
	s := start(t, Config{DataDir: dir, TCP: true})
	require.Equal(t, &Owner{PID: h.command.Process.Pid, Program: filepath.Base(os.Args[0])}, s.Owner())
	require.Equal(t, h.URL, s.URL("postgres"))
	require.ErrorIs(t, s.Kill(), errNotOurs)
	require.ErrorIs(t, s.Halt(), errNotOurs)
	require.ErrorIs(t, s.Relaunch(t.Context()), errNotOurs)
	require.NoError(t, s.Stop(t.Context()))
	require.Equal(t, 1, ask[int](t, s.URL("postgres"), "select 1"))
	require.Equal(t, 1, ask[int](t, s.SocketURL("postgres"), "select 1"))

	require.NoError(t, h.stdin.Close())
	require.NoError(t, s.Wait(t.Context()))
	require.NoError(t, h.command.Wait())
	s = start(t, Config{DataDir: dir, TCP: true})
	require.Nil(t, s.Owner())
	require.Equal(t, h.URL, s.URL("postgres"), "the port of last time")
}

// Goal: the temporary folder of a killed process is removed by a later start,
// and those in use are not.
func TestSweep(t *testing.T) {
	t.Parallel()
	alive, dead := startHelper(t, Config{}, nil), startHelper(t, Config{}, nil)
	require.DirExists(t, dead.Folder)
	dead.kill(t)
	requireGone(t, dead.PID)
	// Any start sweeps, also one of another test: the folder may be gone already.
	start(t, Config{})
	require.NoDirExists(t, dead.Folder)
	require.Equal(t, 1, ask[int](t, alive.URL, "select 1"))
}

// Goal: any user can run a server, not only the one who runs the tests.
// Method: as root, helpers as nobody, and as root behind sudo by nobody.
func TestOtherUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	nobody, err := user.Lookup("nobody")
	require.NoError(t, err)
	uid, err := strconv.Atoi(nobody.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(nobody.Gid)
	require.NoError(t, err)

	dir := publicDir(t)
	program := filepath.Join(dir, "helper") // go test builds where others cannot enter
	copyFile(t, os.Args[0], program)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o755))
	require.NoError(t, os.Chown(home, uid, gid))

	direct := startHelper(t, Config{DataDir: filepath.Join(home, "state", "jobq")}, func(command *exec.Cmd) {
		command.Path, command.Dir = program, "/"
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	})
	require.Equal(t, 1, ask[int](t, direct.URL, "select 1"))

	sudo := startHelper(t, Config{}, func(command *exec.Cmd) {
		command.Env = append(command.Env, "SUDO_USER=nobody")
	})
	require.Equal(t, "nobody", sudo.Account)
	require.Equal(t, 1, ask[int](t, sudo.URL, "select 1"))
	status, err := os.Stat(filepath.Join("/proc", strconv.Itoa(sudo.PID)))
	if err == nil { // there is a /proc
		stat, ok := status.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		require.Equal(t, uint32(uid), stat.Uid)
	}
}

// Goal: root gets told when the server's user cannot reach the folder.
func TestClosedFolder(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
	closed := publicDir(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	_, err := Start(t.Context(), Config{DataDir: filepath.Join(closed, "data")})
	require.ErrorContains(t, err, "choose a folder that this user can reach")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	// By another process: what other tests start meanwhile would inherit the file that is written, and who executes it
	// then is told that it is busy (golang.org/issue/22315).
	require.NoError(t, exec.Command("cp", from, to).Run())
	require.NoError(t, os.Chmod(to, 0o755))
}
