package worker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/monitor"
)

// programs is what the handlers that are no Go functions have in common.
type programs struct {
	supervisor subproc.Supervisor
	streams    []*streamPool
	clients    []*httpHandler
	graceMax   time.Duration // the longest that any has between SIGTERM and SIGKILL

	mu sync.Mutex
	// guarded by mu
	byKind map[string]*monitor.Programs
}

// runProgram runs a program for a kind, and counts it. A machine that has no room
// for it now is no fault of the job's.
func (w *Worker) runProgram(ctx context.Context, try *try, command subproc.Command) (subproc.Result, error) {
	command.Started = try.reached
	ended, err := w.programs.run(ctx, try.kind, command)
	switch {
	case err == nil:
	case subproc.IsMachineTrouble(err):
		err = try.failed(err)
	default:
		try.reached() // it is something else now
	}
	return ended, err
}

// run runs a program for a kind, and counts it.
func (p *programs) run(ctx context.Context, kind string, command subproc.Command) (subproc.Result, error) {
	p.count(kind, func(sum *monitor.Programs) { sum.Started++ })
	ended, err := p.supervisor.Run(ctx, command)
	p.count(kind, func(sum *monitor.Programs) {
		if err != nil {
			sum.NotStarted++
		} else {
			addProgram(sum, ended)
		}
	})
	return ended, err
}

func (p *programs) count(kind string, change func(*monitor.Programs)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKind == nil {
		p.byKind = make(map[string]*monitor.Programs)
	}
	if p.byKind[kind] == nil {
		p.byKind[kind] = new(monitor.Programs)
	}
	change(p.byKind[kind])
}

func addProgram(sum *monitor.Programs, ended subproc.Result) {
	switch {
	case ended.Stopped || ended.Expired:
		sum.Stopped++
	case ended.Signal != "":
		sum.Signalled++
	case ended.ExitCode == 0:
		sum.Succeeded++
	case ended.ExitCode == exitTempFail:
		sum.Later++
	case ended.ExitCode == exitDataError:
		sum.Final++
	default:
		sum.Failed++
	}
	sum.CPUSeconds += ended.CPU.Seconds()
	sum.MaxRSSBytes = max(sum.MaxRSSBytes, ended.MaxRSSBytes)
}

// sums are those of all kinds, with the troubles there are, for the worker's row.
func (p *programs) sums(troubles map[string]string) (json.RawMessage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make(map[string]monitor.Programs, len(p.byKind)+len(troubles))
	for kind, sum := range p.byKind {
		sums[kind] = *sum
	}
	for kind, trouble := range troubles {
		sum := sums[kind]
		sum.Trouble = trouble
		sums[kind] = sum
	}
	return json.Marshal(sums)
}

// close ends what was kept for jobs that will not come any more.
func (p *programs) close() {
	var closing sync.WaitGroup
	for _, pool := range p.streams {
		closing.Go(pool.close)
	}
	closing.Wait()
	for _, client := range p.clients {
		client.close()
	}
	p.supervisor.Close()
}
