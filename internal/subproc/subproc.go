// Package subproc runs a program with everything that it starts, so that all
// of it can be ended: for a lost lease at once, else after it was asked.
//
// Between this process and the program stands a shim: this executable once
// more, in a mode of its own (MaybeRunShim). It leads a session, is the parent
// of the program's process group, adopts what the program's children leave
// behind (Linux), and holds one end of a pipe, the life line. When this process
// ends, however it ends, the life line breaks and the shim kills everything
// below it. Setpgid with a death signal, which is what there is without a shim,
// ends the program and leaves its children.
package subproc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// ErrKill as the cause of the context's end means that the program must not
// have time to do anything more.
var ErrKill = errors.New("kill at once")

const (
	defaultOutputBytes = 64 << 10
	defaultStderrBytes = 16 << 10
	defaultGrace       = 3 * time.Second
	// shimPatience is how long the shim may take to kill and report, after
	// which it is killed itself.
	shimPatience = 10 * time.Second
	// orphanPatience is how long the program's streams may stay open after
	// somebody has killed the shim.
	orphanPatience = time.Second
)

// Command says what to run. Only Args is needed.
type Command struct {
	// Args is the program, looked up in Env's PATH, and its arguments.
	Args []string
	// Dir is the working directory; "" is this process's.
	Dir string
	// Env is the whole environment, as Environ makes it.
	Env []string
	// Stdin is what the program can read.
	Stdin []byte
	// Grace is the time between SIGTERM and SIGKILL. Default 3 seconds.
	Grace time.Duration
	// OutputBytesMax is how much of the end of the output is kept. Default 64 KiB.
	OutputBytesMax int
	// Control is told what the program writes on file descriptor 3, and
	// ControlError what it writes there that cannot be understood. Neither is
	// called after Run has returned. Nil means that nobody listens.
	Control      func(Message)
	ControlError func(error)
}

// Result is how a program ended.
type Result struct {
	ExitCode int    // 0 to 255, or -1 when a signal ended it
	Signal   string // such as "SIGKILL", or ""
	Stopped  bool   // it was told to end
	Output   []byte // the end of standard output and error together
	Stderr   []byte // the end of standard error alone
	// What the program and those of its children that it waited for used.
	CPU         time.Duration
	MaxRSSBytes int64
}

// Run runs the program and returns when all of it has ended. The end of the
// context ends the program: with SIGTERM and, after the grace, SIGKILL, or
// with SIGKILL at once when the cause is ErrKill. The error is about a program
// that could not be started, or a shim that has gone wrong.
func Run(ctx context.Context, command Command) (Result, error) {
	if !shimEnabled.Load() {
		return Result{}, errors.New("this program cannot supervise others: its main must begin with a call of MaybeRunShim")
	}
	if len(command.Args) == 0 {
		return Result{}, errors.New("the command is empty")
	}
	if command.Grace <= 0 {
		command.Grace = defaultGrace
	}
	if command.OutputBytesMax <= 0 {
		command.OutputBytesMax = defaultOutputBytes
	}
	p := &supervised{command: command, output: newTail(command.OutputBytesMax), stderr: newTail(defaultStderrBytes)}
	if err := p.start(); err != nil {
		return Result{}, fmt.Errorf("start %s: %w", command.Args[0], err)
	}
	return p.await(ctx)
}

// supervised is a program that runs, seen from this process.
type supervised struct {
	command        Command
	shim           *exec.Cmd
	lifeLine       *os.File   // orders to the shim
	reports        *os.File   // its answers
	open           []*os.File // our ends of the program's streams
	output, stderr *tail
	streams        sync.WaitGroup // that read what the program writes
}

// pipes collects both ends of pipes, to close what is not handed on.
type pipes struct{ ours, theirs []*os.File }

func (p *pipes) toUs() (ours, theirs *os.File, err error) {
	reader, writer, err := os.Pipe()
	if err == nil {
		p.ours, p.theirs = append(p.ours, reader), append(p.theirs, writer)
	}
	return reader, writer, err
}

func (p *pipes) toThem() (ours, theirs *os.File, err error) {
	reader, writer, err := os.Pipe()
	if err == nil {
		p.ours, p.theirs = append(p.ours, writer), append(p.theirs, reader)
	}
	return writer, reader, err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // a pipe's end: nothing is buffered
	}
}

// start starts the shim, which starts the program.
func (p *supervised) start() (err error) {
	var all pipes
	defer func() {
		closeAll(all.theirs) // the shim has its own by now
		if err != nil {
			closeAll(all.ours)
		}
	}()
	stdin, stdinTheirs, err1 := all.toThem()
	stdout, stdoutTheirs, err2 := all.toUs()
	stderr, stderrTheirs, err3 := all.toUs()
	control, controlTheirs, err4 := all.toUs()
	lifeLine, lifeLineTheirs, err5 := all.toThem()
	reports, reportsTheirs, err6 := all.toUs()
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	self, err := selfPath()
	if err != nil {
		return err
	}
	if info, err := os.Stat(p.command.Dir); p.command.Dir != "" && (err != nil || !info.IsDir()) {
		return fmt.Errorf("chdir %s: not a folder, or not there", p.command.Dir)
	}
	p.shim = &exec.Cmd{
		Path: self, Args: append([]string{shimName}, p.command.Args...), Dir: p.command.Dir, Env: p.command.Env,
		Stdin: stdinTheirs, Stdout: stdoutTheirs, Stderr: stderrTheirs,
		ExtraFiles:  []*os.File{controlTheirs, lifeLineTheirs, reportsTheirs}, // 3, 4, 5
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if p.command.Env == nil {
		p.shim.Env = []string{}
	}
	if err := p.shim.Start(); err != nil {
		return err
	}
	p.lifeLine, p.reports = lifeLine, reports
	p.open = []*os.File{stdin, stdout, stderr, control}
	p.streams.Go(func() { p.feed(stdin) })
	p.streams.Go(func() { p.keep(stdout, p.output) })
	p.streams.Go(func() { p.keep(stderr, p.output, p.stderr) })
	p.streams.Go(func() { p.listen(control) })
	return nil
}

// feed writes standard input. A program that does not read it is within its
// rights: the pipe breaks when it ends.
func (p *supervised) feed(stdin *os.File) {
	_, _ = stdin.Write(p.command.Stdin)
	_ = stdin.Close()
}

// keep reads a stream to its end, and no faster than the tails take it: a
// flood slows the program, and does not grow memory.
func (p *supervised) keep(stream *os.File, tails ...*tail) {
	buffer := make([]byte, 32<<10)
	for {
		count, err := stream.Read(buffer)
		for _, tail := range tails {
			tail.add(buffer[:count])
		}
		if err != nil {
			_ = stream.Close() // read to its end
			return
		}
	}
}

func (p *supervised) listen(control *os.File) {
	readMessages(control, p.command.Control, p.command.ControlError)
	_ = control.Close() // read to its end
}

// await waits for the shim's report, and passes the context's end on to it.
func (p *supervised) await(ctx context.Context) (Result, error) {
	reported := make(chan report, 1)
	go func() { reported <- readReport(p.reports) }()
	var final report
	stopped := false
	select {
	case final = <-reported:
	case <-ctx.Done():
		stopped = true
		final = p.stop(errors.Is(context.Cause(ctx), ErrKill), reported)
	}
	_ = p.lifeLine.Close() // if the shim still lives, it ends now
	_ = p.shim.Wait()      // its own exit code says nothing
	if !final.ended() {
		p.orphaned(final.PID)
	}
	p.streams.Wait()
	result := Result{
		ExitCode: final.ExitCode, Signal: final.Signal, Stopped: stopped, Output: p.output.bytes(), Stderr: p.stderr.bytes(),
		CPU: final.CPU, MaxRSSBytes: final.MaxRSSBytes,
	}
	switch {
	case final.Failure != "":
		return result, errors.New(final.Failure)
	case !final.ended():
		result.ExitCode = -1
		return result, errors.New("the program's supervisor was killed")
	}
	return result, nil
}

// orphaned ends what it can of a program whose shim somebody has killed. The
// program itself died with the shim (its death signal); this is for its
// children. One that has moved to another session cannot be found, and must
// not hold us up by the streams that it has open.
func (p *supervised) orphaned(group int) {
	if group > 0 { // 0: the shim was killed before it could say
		_ = syscall.Kill(-group, syscall.SIGKILL) // none left: fine
	}
	killSession(p.shim.Process.Pid)
	for _, stream := range p.open {
		_ = stream.SetDeadline(time.Now().Add(orphanPatience)) // closed already: fine
	}
}

// Orders to the shim. The end of the stream means orderKill.
const (
	orderTerminate = 'T'
	orderKill      = 'K'
)

// stop has the program ended, and waits for the report.
func (p *supervised) stop(atOnce bool, reported <-chan report) report {
	if !atOnce {
		_, _ = p.lifeLine.Write([]byte{orderTerminate}) // a broken line kills
		select {
		case final := <-reported:
			return final
		case <-time.After(p.command.Grace):
		}
	}
	_, _ = p.lifeLine.Write([]byte{orderKill}) // likewise
	select {
	case final := <-reported:
		return final
	case <-time.After(shimPatience):
		_ = p.shim.Process.Kill() // gone already: fine
		return <-reported
	}
}

// report is what the shim says: the program's pid first, and in the end how it
// ended or why it could not be started.
type report struct {
	PID         int           `json:"pid,omitempty"`
	Failure     string        `json:"failure,omitempty"`
	Ended       bool          `json:"ended,omitempty"`
	ExitCode    int           `json:"exit_code,omitempty"`
	Signal      string        `json:"signal,omitempty"`
	CPU         time.Duration `json:"cpu,omitempty"`
	MaxRSSBytes int64         `json:"max_rss,omitempty"`
}

func (r report) ended() bool { return r.Ended || r.Failure != "" }

// readReport reads until the shim's end of the pipe is closed.
func readReport(reports *os.File) report {
	defer func() { _ = reports.Close() }() // read to its end
	content, _ := io.ReadAll(reports)      // what came is what there is
	var final report
	for line := range bytes.Lines(content) {
		_ = json.Unmarshal(line, &final) // a half line: the shim was killed
	}
	return final
}
