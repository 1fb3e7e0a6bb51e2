package main

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
)

// stopGrace is how long a child may take to end.
const stopGrace = 30 * time.Second

// running is a child process that works.
type running struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	up    chan struct{} // closed when it waits to be told to begin
	ready chan struct{} // closed when its workers are on their way
	ended chan struct{} // closed when it has

	mu sync.Mutex
	// guarded by mu
	first, latest line // the first line, and the last one
	err           error
}

// launch starts a child of a contender on a database.
func launch(ctx context.Context, peers string, c contender, url, command string, o order) (*running, error) {
	o.Tuned = c.tuned
	encoded, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	program := append(c.program(peers), command, string(encoded))
	r := &running{
		cmd: exec.CommandContext(ctx, program[0], program[1:]...), // #nosec G204 -- our own children
		up:  make(chan struct{}), ready: make(chan struct{}), ended: make(chan struct{}),
	}
	r.cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	if c.tuned {
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
func (r *running) listen(stdout io.Reader) {
	defer close(r.ended)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 64<<20) // thousands of samples stand in one line
	for lines.Scan() {
		var l line
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

// say is the latest that the child has said.
func (r *running) say() line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// await waits for a word of it.
func (r *running) await(word <-chan struct{}) error {
	select {
	case <-word:
		return nil
	case <-r.ended:
		_, err := r.result()
		return err
	}
}

// muster starts processes that run jobs, and returns when all wait to be told
// to begin: what it takes to start one is then over. They end with the context.
func (b *bed) muster(ctx context.Context, processes int, o order) ([]*running, error) {
	crew := make([]*running, processes)
	for i := range crew {
		var err error
		if crew[i], err = launch(ctx, b.peers, b.contender, b.url, "work", o); err != nil {
			return nil, err
		}
	}
	for _, child := range crew {
		if err := child.await(child.up); err != nil {
			return nil, err
		}
	}
	return crew, nil
}

// begin tells processes to begin together, and returns when their workers are
// on their way.
func begin(crew ...*running) error {
	for _, child := range crew {
		if _, err := io.WriteString(child.stdin, "begin\n"); err != nil {
			return err
		}
	}
	for _, child := range crew {
		if err := child.await(child.ready); err != nil {
			return err
		}
	}
	return nil
}

// one is a process that has begun. It ends with the context.
func (b *bed) one(ctx context.Context, o order) (*running, error) {
	crew, err := b.muster(ctx, 1, o)
	if err != nil {
		return nil, err
	}
	return crew[0], begin(crew...)
}

// hasEnded says whether it ended by itself, which workers must not.
func (r *running) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// stop tells it to end, and returns its last word.
func (r *running) stop() (line, error) {
	_ = r.stdin.Close() // closed already when it has ended
	select {
	case <-r.ended:
	case <-time.After(stopGrace):
		_ = r.cmd.Process.Kill() // it does not listen
		<-r.ended
	}
	return r.result()
}

// result is its last word, once it has ended.
func (r *running) result() (line, error) {
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest, r.err
}
