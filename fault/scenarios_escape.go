package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// orphansLeft is the mutant whose worker does not adopt what is left when somebody kills a shim.
const orphansLeft = "orphans-not-adopted"

// escapeLimit is how long a process may survive its run, or its worker. A worker gives up after 5 s.
const escapeLimit = 5*time.Second + slack

// runEscaped is a child that a program leaves behind: in a session of its own, deaf to SIGTERM, with a
// child that has left its group as well. It ends by itself at last, so that a broken jobq leaves nothing here.
func runEscaped(folder string) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	if os.Getenv("JOBQ_ESCAPED") == "" {
		if err := startEscaped(folder, "JOBQ_ESCAPED=again"); err != nil {
			return err
		}
	}
	time.Sleep(2 * patience)
	return nil
}

func startEscaped(folder string, env ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "escaped", folder) // #nosec G204 -- this program
	child.Env = append(os.Environ(), env...)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return child.Start()
}

// killShim kills the supervisor of this program, and the program with it.
func killShim() error {
	if err := syscall.Kill(os.Getppid(), syscall.SIGKILL); err != nil {
		return err
	}
	time.Sleep(time.Minute) // the death of the shim ends this
	return nil
}

// escapes has programs leave children in other sessions. They end well, or kill their shims; or somebody
// else kills these, or all workers in the middle of it. Nothing survives its run or its worker.
func escapes(l *lab) error {
	l.atEnd = append(l.atEnd, l.endEscaped)
	workers, err := l.crew(2)
	if err != nil {
		return err
	}
	seen, shims, kills := 0, 0, 0
	err = l.until(max(l.duration(), time.Second), func() error {
		// Rounds, since a worker that is killed just after a shim of its own cannot end what that has left.
		found, err := l.escapeRound(10, func() error { return nil })
		if err != nil {
			return err
		}
		seen += found
		found, err = l.escapeRound(600, func() error {
			for range 2 {
				pause(l.ctx, l.between(0, 300*time.Millisecond))
				shims += l.killOneShim(workers[l.random.IntN(len(workers))])
			}
			return nil
		})
		if err != nil {
			return err
		}
		seen += found
		found, err = l.escapeRound(1500, func() error {
			pause(l.ctx, l.between(0, time.Second))
			for _, w := range workers {
				w.kill()
				kills++
			}
			if err := l.awaitNoEscaped("their worker"); err != nil {
				return err
			}
			for i := range workers {
				if workers[i], err = l.worker(); err != nil {
					return err
				}
			}
			return nil
		})
		seen += found
		return err
	})
	if err != nil {
		return err
	}
	escaped := l.number("select count(*) from jobq.attempt a join jobq.job j on j.id = a.job_id where a.error like '%supervisor was killed%' and j.args->>'do' = 'escape'")
	l.figuref("children in other sessions were seen %d times; %d shims killed by their programs and %d by others, %d kills of workers; nothing survived its run or worker by %s",
		seen, escaped, shims, kills, escapeLimit)
	if seen == 0 || shims == 0 || kills == 0 || escaped <= 0 {
		return errors.New("no escapes")
	}
	return nil
}

// escapeRound has six programs leave children, of which half kill their shims, while the fault happens. It returns
// how often children were seen, when the jobs have ended and nothing is left of them.
func (l *lab) escapeRound(ms int, fault func() error) (seen int, err error) {
	for i := range 6 {
		o := order{Ms: ms, MsTwo: 1, Do: "leave", Once: true}
		if i%2 == 1 && ms < 100 {
			o.Do = "escape"
		}
		if _, err := l.enqueueSurely(o, "task"); err != nil {
			return 0, err
		}
	}
	look := func() (bool, error) {
		if len(l.escaped()) > 0 {
			seen++
		}
		return l.number(unfinished) == 0, nil
	}
	if err := l.within(patience, "children that have left, or the end of all jobs", func() (bool, error) {
		over, err := look()
		return over || seen > 0, err
	}); err != nil {
		return seen, err
	}
	if err := fault(); err != nil {
		return seen, err
	}
	if err := l.within(patience, "the end of all jobs", look); err != nil {
		return seen, err
	}
	return seen, l.awaitNoEscaped("their runs")
}

func (l *lab) awaitNoEscaped(what string) error {
	for end := time.Now().Add(escapeLimit); ; pause(l.ctx, 10*time.Millisecond) {
		left := l.escaped()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(end) || l.ctx.Err() != nil {
			return brokenf("I9: children have survived %s by %s:%s", what, escapeLimit, withParents(left))
		}
	}
}

// escaped are the children of programs of this run that have left their sessions.
func (l *lab) escaped() (pids []int) {
	return l.processesThat(func(_ int, args []string) bool { return len(args) == 3 && args[1] == "escaped" && args[2] == l.folder })
}

func (l *lab) endEscaped() error {
	for _, pid := range l.escaped() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // ended meanwhile: fine
	}
	return nil
}

// withParents lists the processes with those that they are children of.
func withParents(pids []int) (text string) {
	for _, pid := range pids {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parentOf(pid))) // ended meanwhile: without a name
		text += fmt.Sprintf(" %d (child of %d %s)", pid, parentOf(pid), strings.TrimSpace(string(name)))
	}
	return text
}

// killOneShim kills one of the worker's shims, and returns how many that were.
func (l *lab) killOneShim(w *process) int {
	shims := l.processesThat(func(pid int, args []string) bool {
		return args[0] == "jobq-shim" && parentOf(pid) == w.pid()
	})
	if len(shims) == 0 || syscall.Kill(shims[l.random.IntN(len(shims))], syscall.SIGKILL) != nil {
		return 0
	}
	return 1
}

// processesThat are those that live and whose arguments are wanted.
func (l *lab) processesThat(wanted func(pid int, args []string) bool) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is right
	for _, file := range files {
		content, err := os.ReadFile(file) // #nosec G304 -- of the system
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && len(content) > 0 && wanted(pid, strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf is the process above this one; 0 if it has ended.
func parentOf(pid int) int {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	parent, _ := strconv.Atoi(fields[1]) // a number, as the system writes it
	return parent
}
