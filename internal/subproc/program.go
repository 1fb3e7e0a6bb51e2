package subproc

import (
	"context"
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
	reusable bool       // the shim has said that all of the program is gone
	open     []*os.File // our ends of the program's streams
	stderr   *Tail
	streams  sync.WaitGroup // that read what the program writes
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
		Attributes: p.command.Attributes, streams: all.theirs,
	}
	if p.shim, err = s.send(r); err != nil {
		return err
	}
	p.open = all.ours
	if p.command.Talk != nil {
		p.streams.Go(func() { p.talk(stdin, stdout) })
	} else {
		p.streams.Go(func() { p.feed(stdin) })
		p.streams.Go(func() { p.keep(stdout, p.command.Output) })
	}
	p.streams.Go(func() { p.keep(stderr, p.command.Output, p.stderr) })
	p.streams.Go(func() { p.listen(control) })
	return nil
}

// feed writes standard input. A program that does not read it is within its
// rights: the pipe breaks when it ends.
func (p *supervised) feed(stdin *os.File) {
	_, _ = stdin.Write(p.command.Stdin)
	_ = stdin.Close()
}

// talk leaves standard input and output to the caller's function.
func (p *supervised) talk(stdin, stdout *os.File) {
	p.command.Talk(stdin, stdout)
	_ = stdin.Close() // closed already, or the program is not to wait for more
	_, _ = io.Copy(io.Discard, stdout)
	_ = stdout.Close() // read to its end
}

// keep reads a stream to its end, and no faster than the tails take it: a
// flood slows the program, and does not grow memory.
func (p *supervised) keep(stream *os.File, tails ...*Tail) {
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
	go func() { reported <- p.readReports() }()
	var final report
	stopped := false
	select {
	case final = <-reported:
	case <-ctx.Done():
		stopped = true
		final = p.stop(errors.Is(context.Cause(ctx), ErrKill), reported)
	case <-p.command.Kill:
		stopped = true
		final = p.stop(true, reported)
	}
	if !final.ended() {
		p.orphaned(final.PID)
	}
	p.reusable = final.ended()
	p.streams.Wait()
	result := Result{
		ExitCode: final.ExitCode, Signal: final.Signal, Stopped: stopped, Output: p.command.Output.Bytes(), Stderr: p.stderr.Bytes(),
		CPU: time.Duration(final.CPUNs), MaxRSSBytes: final.MaxRSSBytes,
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
	}
}

func parseReport(line []byte) (report, error) {
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return report{}, errors.Join(io.ErrUnexpectedEOF, err)
	}
	return r, nil
}

// orphaned ends what it can of a program whose shim somebody has killed. The
// program itself died with the shim (its death signal); this is for its
// children. One that has moved to another session cannot be found, and must
// not hold us up by the streams that it has open.
func (p *supervised) orphaned(group int) {
	if group > 0 { // 0: the shim was killed before it could say
		_ = syscall.Kill(-group, syscall.SIGKILL) // none left: fine
	}
	killSession(p.shim.command.Process.Pid)
	for _, stream := range p.open {
		_ = stream.SetDeadline(time.Now().Add(orphanPatience)) // closed already: fine
	}
}

// stop has the program ended, and waits for the report.
func (p *supervised) stop(atOnce bool, reported <-chan report) report {
	if !atOnce {
		p.shim.order(orderTerminate)
		select {
		case final := <-reported:
			return final
		case <-p.command.Kill:
		case <-time.After(p.command.Grace):
		}
	}
	p.shim.order(orderKill)
	select {
	case final := <-reported:
		return final
	case <-time.After(shimPatience):
		_ = p.shim.command.Process.Kill() // gone already: fine
		return <-reported
	}
}
