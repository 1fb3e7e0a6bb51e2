package identity_test

import (
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/identity"
)

// A process is proven dead only by its own boot and pid namespace, and only
// when its pid is free or belongs to a process that started at another time.
func TestProof(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	self, err := identity.Self()
	require.NoError(t, err)
	require.Equal(t, identity.Unknown, self.Proof(self), "it lives")

	ended := exec.Command("/bin/true")
	require.NoError(t, ended.Run())
	dead := self
	dead.PID = ended.Process.Pid
	require.Equal(t, identity.Gone, self.Proof(dead))

	zombie := exec.Command("/bin/sleep", "1000")
	require.NoError(t, zombie.Start())
	dead.PID = zombie.Process.Pid
	dead.Start-- // this process may have started in the same tick
	require.Equal(t, identity.Gone, self.Proof(dead), "that pid's process started at another time")
	require.NoError(t, zombie.Process.Kill())
	defer func() { _ = zombie.Wait() }()

	for name, change := range map[string]func(*identity.Process){
		"a longer hostname":     func(p *identity.Process) { p.Hostname += "-2" },
		"another pid namespace": func(p *identity.Process) { p.Namespace = "pid:[1]" },
		"no start":              func(p *identity.Process) { p.Start = 0 },
		"no boot":               func(p *identity.Process) { p.BootID = "" },
	} {
		other := self
		other.PID = ended.Process.Pid
		change(&other)
		require.Equal(t, identity.Unknown, self.Proof(other), name)
	}
	rebooted := self
	rebooted.BootID = "another"
	require.Equal(t, identity.Rebooted, self.Proof(rebooted))
}

// A zombie, whose parent has not asked for it yet, is dead.
func TestZombie(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs /proc")
	}
	self, err := identity.Self()
	require.NoError(t, err)
	// The shell's child outlives the shell's exec of sleep, which never waits for it.
	parent := exec.Command("/bin/sh", "-c", "sh -c 'exec sleep 1000' & echo $!; exec sleep 1000")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	defer func() {
		_ = parent.Process.Kill()
		_ = parent.Wait()
	}()
	line := make([]byte, 32)
	n, err := out.Read(line)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(line[:n-1]))
	require.NoError(t, err)
	child, err := identity.Of(pid)
	require.NoError(t, err)
	require.Equal(t, identity.Unknown, self.Proof(child))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool { return self.Proof(child) == identity.Gone }, 5*time.Minute, time.Millisecond)
}

// Ids are hostname-pid-random.
func TestNewID(t *testing.T) {
	t.Parallel()
	self, err := identity.Self()
	require.NoError(t, err)
	first, err := self.NewID()
	require.NoError(t, err)
	second, err := self.NewID()
	require.NoError(t, err)
	require.NotEqual(t, first, second)
	require.Regexp(t, `^.+-\d+-[0-9a-f]{8}$`, first)
}
