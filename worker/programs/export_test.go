package programs

// Failures is how often in a row the handler of a kind could not be reached; 0
// when it can.
func Failures(p *Programs, kind string) int { return p.breaker.Outages()[kind].Failures }

// Deaths is how many kept processes of a pool have died in a row; -1 for a kind
// without a pool.
func Deaths(p *Programs, kind string) int {
	for _, pool := range p.pools {
		if pool.kind == kind {
			pool.mu.Lock()
			defer pool.mu.Unlock()
			return pool.deaths
		}
	}
	return -1
}

// IsDraining says whether the worker has begun to drain.
func IsDraining(p *Programs) bool { return p.host.IsDraining() }

// Ended is how many programs of a kind have ended.
func Ended(p *Programs, kind string) int64 {
	sum := external{p}.Summary()[kind]
	return sum.Succeeded + sum.Later + sum.Final + sum.Failed + sum.Signalled + sum.Stopped
}
