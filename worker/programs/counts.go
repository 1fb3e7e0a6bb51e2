package programs

import (
	"github.com/jobq-dev/jobq/internal/printable"
	"github.com/jobq-dev/jobq/internal/subproc"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker/internal/excerpt"
)

// troubleBytesMax bounds a reason in the worker's row.
const troubleBytesMax = 500

// count changes what is counted of a kind's programs.
func (p *Programs) count(kind string, change func(*monitor.Programs)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts[kind] == nil {
		p.counts[kind] = new(monitor.Programs)
	}
	change(p.counts[kind])
}

// addEnd counts how a program has ended, or that it could not be started.
func addEnd(sum *monitor.Programs, ended subproc.Result, err error) {
	switch {
	case err != nil:
		sum.NotStarted++
		return
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

// Summary is what operators see of each kind: the counts, and why a handler cannot
// be reached now.
func (e external) Summary() map[string]monitor.Programs {
	outages := e.breaker.Outages()
	e.mu.Lock()
	defer e.mu.Unlock()
	summary := make(map[string]monitor.Programs, len(e.counts)+len(outages))
	for kind, sum := range e.counts {
		summary[kind] = *sum
	}
	for kind, outage := range outages {
		sum := summary[kind]
		sum.Trouble = excerpt.Storable(printable.FirstLine(outage.Reason.Error()), troubleBytesMax)
		summary[kind] = sum
	}
	return summary
}
