package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jobq-dev/jobq/fault/check"
)

// pooled runs everything through PgBouncer in transaction mode, at jobq's
// defaults, and kills workers. No run may be stored as failed, and nothing may
// stay behind in the sessions that all share.
func pooled(l *lab) error {
	if err := l.startPooler(); err != nil {
		return err
	}
	// Janitors take turns there, so that none hears of a lease's end.
	l.run.Bound += scan
	workers, err := l.crew(3)
	if err != nil {
		return err
	}
	stop := l.produce(20, 100)
	kills := 0
	err = l.until(max(l.duration(), 6*time.Second), func() error {
		pause(l.ctx, l.between(600*time.Millisecond, 1500*time.Millisecond))
		i := l.random.IntN(len(workers))
		workers[i].kill()
		kills++
		workers[i], err = l.worker()
		return err
	})
	if err := errors.Join(err, stop(), l.drain()); err != nil {
		return err
	}
	failed := l.number("select count(*) from jobq.attempt where outcome = 'failed'")
	l.after = func(v *check.Verdict) string {
		return fmt.Sprintf("%d kills behind a pooler, %d jobs, %d successful runs stored as failed", kills, v.Acknowledged, failed)
	}
	if failed != 0 {
		return brokenf("%d runs were stored as failed: %s", failed, l.text("select string_agg(distinct error, '; ') from jobq.attempt where outcome = 'failed'"))
	}
	return nil
}

// startPooler leads the processes that start from now on through a PgBouncer of
// the run's own, with few server sessions for each.
func (l *lab) startPooler() error {
	program, err := poolerProgram()
	if err != nil {
		return err
	}
	dir := filepath.Join(l.folder, "pooler")
	s, err := l.serverIn(dir) // for the user that may run it
	if err != nil {
		return err
	}
	var users strings.Builder
	for i := range 200 { // of processes: see role
		fmt.Fprintf(&users, "\"%s_p%d\" \"\"\n", l.database, i)
	}
	config := fmt.Sprintf(`[databases]
%s = host=%s port=%s
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = %s
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = 3
`, l.database, filepath.Dir(l.socket), l.socket[strings.LastIndexByte(l.socket, '.')+1:], dir, filepath.Join(dir, "users"))
	for name, content := range map[string]string{"users": users.String(), "config": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil { // #nosec G306 -- another user reads it
			return err
		}
	}
	log, err := os.Create(filepath.Join(l.folder, "pooler.log")) // #nosec G304 -- a scratch folder
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()                             // the pooler has its own
	command := exec.Command(program, filepath.Join(dir, "config")) // #nosec G204 -- the pooler
	command.Dir, command.Stdout, command.Stderr = "/", log, log
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	l.atEnd = append(l.atEnd, func() error {
		_ = command.Process.Signal(syscall.SIGQUIT) // ended already: fine
		_ = command.Wait()                          // how it ended is in its log
		return nil
	})
	if err := l.within(patience, "the pooler", func() (bool, error) {
		content, err := os.ReadFile(log.Name())
		return strings.Contains(string(content), "process up"), err
	}); err != nil {
		content, _ := os.ReadFile(log.Name()) // empty: no more to say
		return fmt.Errorf("%w: %s", err, content)
	}
	l.socket = s.socket()
	return nil
}

func poolerProgram() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", errors.New("needs PgBouncer (apt-get install pgbouncer)")
}

func pooler() error {
	_, err := poolerProgram()
	return err
}
