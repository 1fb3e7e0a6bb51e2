package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/bench/child"
)

// stopGrace is how long a child may take to end.
const stopGrace = 30 * time.Second

// lookEvery is how often it is asked how many jobs have run.
const lookEvery = 5 * time.Millisecond

// Process is a child process that works.
type Process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	up    chan struct{} // closed when it waits to be told to begin
	ready chan struct{} // closed when its workers are on their way
	ended chan struct{} // closed when it has

	mu sync.Mutex
	// guarded by mu
	first, latest child.Line // the first line, and the last one
	err           error
}

// launch starts a child of a contender on a database.
func launch(ctx context.Context, peers string, c Contender, url, command string, o child.Order) (*Process, error) {
	o.Tuned = c.Tuned
	encoded, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	program := append(c.Program(peers), command, string(encoded))
	r := &Process{
		cmd: exec.CommandContext(ctx, program[0], program[1:]...), // #nosec G204 -- our own children
		up:  make(chan struct{}), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	r.cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	if c.Tuned {
		r.cmd.Env = append(r.cmd.Env, "GOGC=400") // as `jobq worker` has it; River gets it too
	}
	r.cmd.Stderr = os.Stderr
	r.cmd.WaitDelay = stopGrace
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go r.listen(stdout)
	return r, nil
}

// listen reads what the child says until it ends.
func (r *Process) listen(stdout io.Reader) {
	defer close(r.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20) // thousands of samples stand in one line
	for lines.Scan() {
		var l child.Line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			fmt.Fprintf(os.Stderr, "%s\n", lines.Bytes()) // a warning of a peer's
			continue
		}
		r.mu.Lock()
		switch r.latest = l; {
		case l.Up:
			close(r.up)
		case l.Ready:
			r.first = l
			close(r.ready)
		}
		r.mu.Unlock()
	}
	err := r.cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err = err; err == nil && !r.latest.End {
		r.err = errors.New("a child ended without a result")
	}
}

// Say is the latest that the child has said.
func (r *Process) Say() child.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// await waits for a word of it.
func (r *Process) await(word <-chan struct{}) error {
	select {
	case <-word:
		return nil
	case <-r.ended:
		_, err := r.Result()
		return err
	}
}

// Muster starts processes that run jobs, and returns when all wait to be told
// to begin: what it takes to start one is then over. They end with the context.
func (d *Database) Muster(ctx context.Context, processes int, o child.Order) ([]*Process, error) {
	crew := make([]*Process, processes)
	for i := range crew {
		var err error
		if crew[i], err = launch(ctx, d.server.config.Peers, d.Contender, d.URL, "work", o); err != nil {
			return nil, err
		}
	}
	for _, process := range crew {
		if err := process.await(process.up); err != nil {
			return nil, err
		}
	}
	return crew, nil
}

// Begin tells processes to begin together, and returns when their workers are
// on their way.
func Begin(crew ...*Process) error {
	for _, process := range crew {
		if _, err := io.WriteString(process.stdin, "begin\n"); err != nil {
			return err
		}
	}
	for _, process := range crew {
		if err := process.await(process.ready); err != nil {
			return err
		}
	}
	return nil
}

// One is a process that has begun. It ends with the context.
func (d *Database) One(ctx context.Context, o child.Order) (*Process, error) {
	crew, err := d.Muster(ctx, 1, o)
	if err != nil {
		return nil, err
	}
	return crew[0], Begin(crew...)
}

// HasEnded says whether it ended by itself, which workers must not.
func (r *Process) HasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// Stop tells it to end, and returns its last word.
func (r *Process) Stop() (child.Line, error) {
	_ = r.stdin.Close() // closed already when it has ended
	select {
	case <-r.ended:
	case <-time.After(stopGrace):
		_ = r.cmd.Process.Kill() // it does not listen
		<-r.ended
	}
	return r.Result()
}

// First is what it said when its workers were on their way.
func (r *Process) First() child.Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first
}

// Kill ends it as a crash would.
func (r *Process) Kill() error {
	err := r.cmd.Process.Kill()
	<-r.ended
	return err
}

// Result is its last word, once it has ended.
func (r *Process) Result() (child.Line, error) {
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.err
}

// AwaitRan waits until the processes together have run so many jobs,
// which it returns, or the limit is reached.
func AwaitRan(ctx context.Context, processes []*Process, jobs int64, limit time.Duration) (all bool, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		var ran int64
		for _, process := range processes {
			ran += process.Say().Ran
			if process.HasEnded() && process.Say().Ran < jobs {
				_, err := process.Result()
				return false, fmt.Errorf("a worker has ended: %w", err)
			}
		}
		if ran >= jobs {
			return true, nil
		}
		select {
		case <-ticker.C:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
