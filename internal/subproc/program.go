package subproc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// supervised is a program that runs, seen from this process.
type supervised struct {
	command  Command
	shim     *shimProcess
	reusable bool // the shim has said that all of the program is gone
	stdin    *os.File
	outputs  []*stream // what the program writes
	stderr   *Tail
	streams  sync.WaitGroup // that read what the program writes
	// streamPatience is how long these may go on after the program has ended.
	streamPatience time.Duration

	mu sync.Mutex
	// guarded by mu
	deadline time.Duration // that the shim knows
	over     bool          // the shim may have another program
}

// pipes collects both ends of pipes, to close what is not handed on.
type pipes struct{ ours, theirs []*os.File }

func (p *pipes) toUs() (ours *os.File, err error) {
	reader, writer, err := os.Pipe()
	if err == nil {
		p.ours, p.theirs = append(p.ours, reader), append(p.theirs, writer)
	}
	return reader, err
}

func (p *pipes) toThem() (ours *os.File, err error) {
	reader, writer, err := os.Pipe()
	if err == nil {
		p.ours, p.theirs = append(p.ours, writer), append(p.theirs, reader)
	}
	return writer, err
}

func closeAll(files []*os.File) {
	for _, file := range files {
		_ = file.Close() // a pipe's end: nothing is buffered
	}
}

// start has a shim start the program.
func (p *supervised) start(s *Supervisor) (err error) {
	var all pipes
	defer func() {
		closeAll(all.theirs) // the shim has its own by now
		if err != nil {
			closeAll(all.ours)
		}
	}()
	stdin, err1 := all.toThem()
	stdout, err2 := all.toUs()
	stderr, err3 := all.toUs()
	control, err4 := all.toUs()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	r := request{
		Args: bytesOf(p.command.Args), Env: bytesOf(p.command.Env), Dir: []byte(p.command.Dir),
		Attributes: p.command.Attributes, Freezes: p.command.Freezes, streams: all.theirs,
	}
	if p.command.Deadline != nil {
		p.deadline = p.command.Deadline()
		r.DeadlineNs = int64(p.deadline)
	}
	if p.shim, err = s.send(r); err != nil {
		return err
	}
	p.stdin, p.outputs = stdin, []*stream{{File: stdout}, {File: stderr}, {File: control}}
	p.read()
	return nil
}

// read starts what feeds the program and reads what it writes.
func (p *supervised) read() {
	stdout, stderr, control := p.outputs[0], p.outputs[1], p.outputs[2]
	stderr.keep = func(chunk []byte) {
		p.command.Output.add(chunk)
		p.stderr.add(chunk)
	}
	if p.command.Talk != nil {
		p.streams.Go(func() { p.talk(stdout) })
	} else {
		p.streams.Go(func() { p.feed(p.stdin) })
		stdout.keep = p.command.Output.add
		p.streams.Go(func() { p.keep(stdout) })
	}
	p.streams.Go(func() { p.keep(stderr) })
	p.streams.Go(func() { p.listen(control) })
}

// feed writes standard input. A program that does not read it is within its
// rights: the pipe breaks when it ends.
func (p *supervised) feed(stdin *os.File) {
	_, _ = stdin.Write(p.command.Stdin)
	_ = stdin.Close()
}

// talk leaves standard input and output to the caller's function.
func (p *supervised) talk(stdout *stream) {
	p.command.Talk(Conversation{Stdin: p.stdin, Stdout: stdout, Arm: p.arm, Settle: p.outputs[1].settle, Unread: func() int { return unread(p.stdin) }})
	_, _ = io.Copy(io.Discard, stdout)
	_ = stdout.Close() // read to its end
}

// keep reads a stream to its end, and no faster than what it keeps it in takes
// it: a flood slows the program, and does not grow memory.
func (p *supervised) keep(stream *stream) {
	buffer := make([]byte, 32<<10)
	for stream.readKept(buffer) == nil { //nolint:revive // the reading is all
	}
	_ = stream.Close() // read to its end
}

func (p *supervised) listen(control *stream) {
	readMessages(control, p.command.Control, p.command.ControlError)
	_ = control.Close() // read to its end
}

// await waits for the shim's report, and passes the context's end on to it.
func (p *supervised) await(ctx context.Context) (Result, error) {
	reported := make(chan report, 1)
	go func() { reported <- p.readReports() }()
	final, stopped := p.wait(ctx, reported)
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	if !final.ended() {
		// The program itself died with the shim (its death signal): this is for its children. One
		// that has moved to another session is found only where orphans are adopted.
		final.Left = endOrphans(p.shim.command.Process.Pid, final.PID)
	}
	if len(final.Left) > 0 {
		adopted.reap() // those of earlier runs, or they would gather
	}
	p.reusable = final.ended() && len(final.Left) == 0
	stdinLeft := -1
	if p.command.Talk != nil { // before the pipe is gone
		stdinLeft = unread(p.stdin)
		_ = p.stdin.SetWriteDeadline(time.Now()) // nobody of the program is left to read
	}
	p.awaitStreams(ctx)
	_ = p.stdin.Close() // closed already, where nobody talks
	result := Result{
		StdinLeft: stdinLeft, ExitCode: final.ExitCode, Signal: final.Signal, Stopped: stopped, Expired: final.Expired, Output: p.command.Output.Bytes(), Stderr: p.stderr.Bytes(),
		CPU: time.Duration(final.CPUNs), MaxRSSBytes: final.MaxRSSBytes, Left: named(final.Left),
	}
	switch {
	case final.Failure != "":
		return result, &startFailure{final.Failure, syscall.Errno(final.Errno)}
	case !final.ended():
		result.ExitCode = -1
		return result, errors.New("the program's supervisor was killed")
	}
	return result, nil
}

// awaitStreams waits until what the program has written is read. Somebody
// whom nobody here can end may have the streams open still: one that was given a
// descriptor, or that has opened it under /proc. It may not hold up a run that
// is over, nor keep its lease.
func (p *supervised) awaitStreams(ctx context.Context) {
	read := make(chan struct{})
	go func() {
		p.streams.Wait()
		close(read)
	}()
	patience := time.NewTimer(p.streamPatience)
	defer patience.Stop()
	select {
	case <-read:
		return
	case <-ctx.Done():
	case <-p.command.Kill:
	case <-patience.C:
	}
	_ = p.stdin.SetWriteDeadline(time.Now()) // closed already: fine
	for _, output := range p.outputs {
		output.cut()
	}
	<-read
}

// wait returns the shim's last report, and whether the program was told to end.
func (p *supervised) wait(ctx context.Context, reported <-chan report) (final report, stopped bool) {
	var tick, grace, impatience <-chan time.Time
	if p.command.Deadline != nil {
		ticker := time.NewTicker(p.command.DeadlineEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	asked, kill := ctx.Done(), p.command.Kill
	killNow := func() {
		p.shim.order(orderKill)
		asked, kill, grace, impatience = nil, nil, nil, time.After(p.patience())
	}
	for {
		select {
		case final = <-reported:
			return final, stopped
		case <-tick:
			p.renew()
		case <-p.command.Renew:
			p.renew()
		case number := <-p.command.Notice:
			p.shim.order(orderSignal, byte(number)) // #nosec G115 -- signals have small numbers
		case <-asked:
			asked, stopped = nil, true
			if errors.Is(context.Cause(ctx), ErrKill) {
				killNow()
				continue
			}
			p.shim.order(orderTerminate) // a broken line kills
			grace = time.After(p.command.Grace)
		case <-kill:
			stopped = true
			killNow()
		case <-grace:
			killNow()
		case <-impatience:
			_ = p.shim.command.Process.Kill() // gone already: fine
		}
	}
}

// patience is how long the shim may take to kill.
func (p *supervised) patience() time.Duration {
	if p.command.Deadline == nil {
		return shimPatience
	}
	left := p.command.Deadline() - sinceBoot()
	if p.command.Freezes && left <= 0 { // it is frozen, so there is no hurry
		return shimPatience
	}
	return max(shimPatienceMin, min(left, shimPatience))
}

// renew tells the shim a deadline that has changed.
func (p *supervised) renew() {
	if p.command.Deadline == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if deadline := p.command.Deadline(); deadline != p.deadline {
		p.setDeadlineLocked(deadline)
	}
}

// arm sees to it that the shim knows no later deadline than there is now. An
// earlier one it may have: there is time to renew that. So a program that has
// work all the time is not dearer for it.
func (p *supervised) arm() {
	if p.command.Deadline == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if deadline := p.command.Deadline(); !p.over && deadline > 0 && (p.deadline == 0 || deadline < p.deadline) {
		p.setDeadlineLocked(deadline)
	}
}

func (p *supervised) setDeadlineLocked(deadline time.Duration) {
	p.deadline = deadline
	p.shim.order(binary.BigEndian.AppendUint64([]byte{orderDeadline}, uint64(deadline))...) // #nosec G115 -- not negative
}

// readReports reads until the program has ended, or the shim.
func (p *supervised) readReports() report {
	var pid int
	for {
		next, err := p.shim.readReport()
		if err != nil {
			return report{PID: pid}
		}
		if next.ended() {
			return next
		}
		pid = next.PID
		if p.command.Started != nil {
			p.command.Started()
		}
	}
}

func parseReport(line []byte) (report, error) {
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return report{}, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return r, nil
}
