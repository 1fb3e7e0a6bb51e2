package worker

import "github.com/jobq-dev/jobq/internal/subproc"

// programs is what the handlers that are no Go functions have in common.
type programs struct {
	supervisor subproc.Supervisor
}

// close ends what was kept for jobs that will not come any more.
func (p *programs) close() { p.supervisor.Close() }
