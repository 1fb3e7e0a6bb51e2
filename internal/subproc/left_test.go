package subproc_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/subproc"
)

const (
	// adopterVariable makes the test binary a worker that adopts orphans, and runs the script that it names twice.
	adopterVariable = "JOBQ_TEST_ADOPTER"
	// rootVariable makes the test binary, if its file belongs to root and has the setuid bit, a
	// process of root that nobody else may end, as one of sudo is.
	rootVariable = "JOBQ_TEST_ROOT"
	// concealedVariable makes the adopter conceal itself, and is in its environment.
	concealedVariable = "JOBQ_TEST_CONCEALED"
)

// adopted is what an adopter says of a run.
type adoptedRun struct {
	Result subproc.Result
	Error  string
	CPU    time.Duration // of the adopter and its shims while it ran
}

func adopt(script string) {
	subproc.AdoptOrphans()
	var s subproc.Supervisor
	for range 2 {
		before := cpuTime()
		result, err := s.Run(context.Background(), shell(script))
		run := adoptedRun{Result: result, CPU: cpuTime() - before}
		if err != nil {
			run.Error = err.Error()
		}
		_ = json.NewEncoder(os.Stdout).Encode(run)
	}
	s.Close()
}

// cpuTime is that of this process and of the children that it has waited for.
func cpuTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		_ = syscall.Getrusage(who, &usage)
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum
}

func stayAsRoot() {
	if err := syscall.Setuid(0); err != nil {
		os.Exit(1)
	}
	if err := os.WriteFile(os.Getenv(rootVariable), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		os.Exit(1)
	}
	<-time.After(patience)
	os.Exit(0)
}

// runAdopter returns what an adopter says of its two runs of the script, as this user.
func runAdopter(t *testing.T, script string, who *syscall.Credential, env ...string) [2]adoptedRun {
	t.Helper()
	adopter := exec.Command("/proc/self/exe")
	adopter.Env = slices.Concat(os.Environ(), env, []string{adopterVariable + "=" + script})
	adopter.Dir = "/"
	adopter.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	var told bytes.Buffer
	adopter.Stdout, adopter.Stderr = &told, os.Stderr
	require.NoError(t, adopter.Run())
	var runs [2]adoptedRun
	decoder := json.NewDecoder(&told)
	require.NoError(t, decoder.Decode(&runs[0]))
	require.NoError(t, decoder.Decode(&runs[1]))
	return runs
}

// A program that moves a child into another session and kills its shim does not get the child away:
// who adopts orphans ends it, and runs the next program as if nothing had been.
func TestEscapeIsEnded(t *testing.T) {
	t.Parallel()
	mark := uniqueSleep(t)
	runs := runAdopter(t, fmt.Sprintf("setsid sh -c 'sleep %[1]s & sleep %[1]s' & kill -KILL $PPID; sleep %[1]s", mark), nil)
	for _, run := range runs {
		require.Contains(t, run.Error, "supervisor was killed")
		require.Empty(t, run.Result.Left)
	}
	require.Empty(t, processesWith(t, mark))
}

// A child that became root, as with sudo, cannot be ended by a worker that is not root. It is named, the run
// ends, and nobody spins until then.
func TestRootChildIsNamed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can make a program that becomes root")
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	folder, err := os.MkdirTemp("/tmp", "jobq-root-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	require.NoError(t, os.Chmod(folder, 0o777)) //nolint:gosec // for nobody, who has the test to himself
	becomesRoot := filepath.Join(folder, "becomes-root")
	binary, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(becomesRoot, binary, 0o755)) //nolint:gosec // likewise
	require.NoError(t, os.Chmod(becomesRoot, os.ModeSetuid|0o755))
	for name, script := range map[string]string{
		"beside a program that ends":  "%[1]s & until test -s %[2]s; do sleep 0.01; done; exit 0",
		"with a shim that was killed": "%[1]s & until test -s %[2]s; do sleep 0.01; done; kill -KILL $PPID; sleep 1000",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pids := filepath.Join(folder, strings.ReplaceAll(name, " ", "-"))
			runs := runAdopter(t, fmt.Sprintf("rm -f %[2]s; "+script, rootVariable+"="+pids+" "+becomesRoot, pids), nobody)
			for _, run := range runs {
				require.NotEmpty(t, run.Result.Left, "%s %s", run.Error, run.Result.Output)
				require.Equal(t, "root", run.Result.Left[0].User)
				require.Less(t, run.CPU, time.Second)
				for _, left := range run.Result.Left {
					_ = syscall.Kill(left.PID, syscall.SIGKILL)
				}
			}
		})
	}
}

// A program reads nothing in the environment and memory of a worker that conceals itself, nor in its
// shim's, although it runs as the same user.
func TestConcealed(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: only root can run the worker as another user, and root reads all")
	}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	const script = `worker=$(cut -d' ' -f4 /proc/$PPID/stat)
		for process in $worker $PPID; do for file in environ mem maps; do { true < /proc/$process/$file; } 2>/dev/null && echo "reads $file of $process"; done; done
		tr '\0' '\n' < /proc/$worker/environ; tr '\0' '\n' < /proc/$$/environ | grep ^PATH; echo end`
	open := runAdopter(t, script, nobody)
	require.Contains(t, string(open[0].Result.Output), adopterVariable, "an open worker tells")
	concealed := runAdopter(t, script, nobody, concealedVariable+"=secret")
	for _, run := range concealed {
		require.Empty(t, run.Error)
		output := string(run.Result.Output)
		require.NotContains(t, output, "reads ")
		require.NotContains(t, output, "secret")
		require.Regexp(t, `(?m)^PATH=`, output, "the program itself is open; what it says on either stream may come first")
	}
}
