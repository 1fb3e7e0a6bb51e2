package programs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// freezeLab is a worker behind a proxy. Its programs freeze when their leases cannot be extended.
type freezeLab struct {
	proxy  *pgtest.Proxy
	client *jobq.Client // behind the proxy, as the worker
	direct *pgxpool.Pool
	folder string
	log    *lines
	worker *running
}

// freezing has the handlers begin with a script that writes its pid to a file named after the job, and ends when a file
// "end" is there.
const freezing = `echo $$ > %[1]s/new; mv %[1]s/new %[1]s/$job; until [ -e %[1]s/end ]; do sleep 0.02; done`

func newFreezeLab(t *testing.T, handle func(p *programs.Programs, script string) error) *freezeLab {
	t.Helper()
	url := pgtest.URL(t)
	l := &freezeLab{proxy: pgtest.StartProxy(t, url), direct: pgtest.Connect(t, url), folder: t.TempDir(), log: new(lines)}
	var err error
	l.client, err = jobq.NewClient(pgtest.Connect(t, l.proxy.URL), nil)
	require.NoError(t, err)
	lease := 3 * time.Second
	require.NoError(t, jobtest.ErrorOf(operator.New(l.client, "test").SetQueue(context.Background(), "default", operator.QueueChange{Lease: &lease})))
	w, err := worker.New(l.client, &worker.Config{
		NoJanitor: true, Queues: map[string]worker.QueueConfig{"default": {Slots: 1}}, DrainTimeout: -1, Logger: slog.New(slog.NewTextHandler(l.log, nil)),
	})
	require.NoError(t, err)
	require.NoError(t, handle(programs.New(w), fmt.Sprintf(freezing, l.folder)))
	l.worker = run(t, w)
	return l
}

// pid waits for the job's program.
func (l *freezeLab) pid(t *testing.T, id int64) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(l.folder, fmt.Sprint(id)))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(content)))
		return err == nil
	}, patience, 5*time.Millisecond)
	return pid
}

// cut takes the database away from the worker, and returns when its program is frozen and its lease has ended.
func (l *freezeLab) cut(t *testing.T, pid int) {
	t.Helper()
	l.cutFor(t, pid, 0)
}

// cutFor returns so long after the end of the lease.
func (l *freezeLab) cutFor(t *testing.T, pid int, longer time.Duration) {
	t.Helper()
	l.proxy.Refuse(true)
	l.proxy.Cut()
	require.Eventually(t, func() bool { return stateOf(pid) == "T" }, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool {
		var over bool
		err := l.direct.QueryRow(context.Background(), "select max(expires_at) < clock_timestamp() - $1::interval from jobq.lease", longer).Scan(&over)
		return err == nil && over
	}, patience, 5*time.Millisecond)
	require.Equal(t, "T", stateOf(pid))
	// A machine that stands still for a while freezes it before, too.
	require.Eventually(t, func() bool { return l.log.count("run frozen") == l.log.count("frozen run goes on")+1 }, patience, 5*time.Millisecond)
}

// stateOf is the state of a process as /proc has it; "" when it has ended.
func stateOf(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	return string(content[bytes.LastIndexByte(content, ')')+2])
}

func (l *freezeLab) end(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(l.folder, "end"), nil, 0o600))
}

// freezers handle the kind "p" with a program that freezes.
var freezers = map[string]func(p *programs.Programs, script string) error{
	"command": func(p *programs.Programs, script string) error {
		command := shellCommand("job=$JOBQ_JOB_ID; " + script)
		command.LostFreezes = true
		return p.HandleCommand("p", command, nil)
	},
	"kept process": func(p *programs.Programs, script string) error {
		command := shellCommand(`while read -r line; do job=${line#*'"id":'}; job=${job%%,*}; ` + script + `; echo "{\"id\": $job, \"done\": true}"; done`)
		command.LostFreezes = true
		return p.HandleStream("p", programs.Stream{Command: command}, nil)
	},
}

// A cut that is longer than the lease costs a program that freezes neither its run nor an attempt: it goes on when the
// database answers, under a lease that is extended.
func TestCutCostsNoRun(t *testing.T) {
	t.Parallel()
	for name, handle := range freezers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFreezeLab(t, handle)
			id := enqueueRaw(t, l.client, "p", "{}", nil)
			pid := l.pid(t, id)
			l.cut(t, pid)
			l.proxy.Refuse(false)
			require.Eventually(t, func() bool { return stateOf(pid) == "S" }, patience, 5*time.Millisecond)
			require.Eventually(t, func() bool {
				var extended bool
				err := l.direct.QueryRow(context.Background(), "select max(expires_at) > clock_timestamp() from jobq.lease").Scan(&extended)
				return err == nil && extended && l.log.count("frozen run goes on") > 0
			}, patience, 5*time.Millisecond)
			l.end(t)
			job := awaitState(t, l.client, id, jobq.StateCompleted)
			require.Zero(t, job.Attempts)
			require.Zero(t, job.Crashes)
			for _, attempt := range attempts(t, l.client, id) { // kept or not
				require.Equal(t, "completed", string(attempt.Outcome))
			}
		})
	}
}

// A frozen program whose job was taken meanwhile dies without going on, and nothing of it is stored.
func TestFrozenProgramOfATakenJobDies(t *testing.T) {
	t.Parallel()
	for name, handle := range freezers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newFreezeLab(t, handle)
			id := enqueueRaw(t, l.client, "p", "{}", nil)
			pid := l.pid(t, id)
			l.cut(t, pid)
			wentOn := l.log.count("frozen run goes on")
			l.end(t) // it would end as soon as it goes on
			schema, err := db.NewSchema(l.client.Schema())
			require.NoError(t, err)
			reaped, err := schema.Reap(context.Background(), l.direct, nil, 10, "test")
			require.NoError(t, err)
			require.Len(t, reaped, 1)
			_, err = l.direct.Exec(context.Background(), "update jobq.queue set paused_at = now()")
			require.NoError(t, err)
			l.proxy.Refuse(false)
			require.Eventually(t, func() bool { return stateOf(pid) == "" }, patience, 5*time.Millisecond)
			require.Eventually(t, func() bool { return l.log.count("lease lost") == 1 }, patience, 5*time.Millisecond)
			require.Equal(t, wentOn, l.log.count("frozen run goes on"))
			job := awaitState(t, l.client, id, jobq.StateAvailable)
			require.EqualValues(t, 1, job.Attempts)
		})
	}
}

// The time in which a program is frozen does not count for its stall timeout.
func TestFrozenIsNotStalled(t *testing.T) {
	t.Parallel()
	const stallTimeout = 4 * time.Second
	l := newFreezeLab(t, func(p *programs.Programs, script string) error {
		command := shellCommand("while :; do echo .; sleep 0.1; done & job=$JOBQ_JOB_ID; " + script)
		command.LostFreezes = true
		return p.HandleCommand("p", command, &worker.HandleOptions{StallTimeout: stallTimeout})
	})
	id := enqueueRaw(t, l.client, "p", "{}", nil)
	pid := l.pid(t, id)
	l.cutFor(t, pid, stallTimeout)
	l.proxy.Refuse(false)
	l.end(t)
	require.Zero(t, awaitState(t, l.client, id, jobq.StateCompleted).Attempts)
}
