package worker

import (
	"sync"

	"github.com/jobq-dev/jobq/internal/subproc"
)

// programs is what the handlers that are no Go functions have in common.
type programs struct {
	supervisor subproc.Supervisor
	streams    []*streamPool
	clients    []*httpHandler
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
