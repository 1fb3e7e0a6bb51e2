package bench

import (
	"fmt"
	"runtime"

	"github.com/jobq-dev/jobq/internal/measure"
)

// full is the part of a resource that counts as all of it: what is left is
// noise and the ends of the run.
const full = 0.8

// limit says what kept a run from being faster: the first of these that was
// used up. connections are those that were used for the jobs, of which each has
// one round trip under way at a time.
func (b *bench) limit(usage measure.Usage, calls traced, connections int) string {
	elapsed := usage.Elapsed.Seconds()
	client, server := usage.ClientCPU.Seconds()/elapsed, usage.ServerCPU.Seconds()/elapsed
	waiting := min(calls.waited().Seconds()/elapsed/float64(connections), 1)
	commits := float64(calls.roundTrips) * b.latency.Commit.P50.Seconds() / elapsed / float64(connections)
	cores := float64(runtime.NumCPU())
	switch {
	case usage.ServerKnown && client+server > full*cores:
		return fmt.Sprintf("CPU of this machine: client %.1f and server %.1f of %.0f cores", client, server, cores)
	case client > full*float64(runtime.GOMAXPROCS(0)):
		return fmt.Sprintf("client CPU: %.1f of %d cores", client, runtime.GOMAXPROCS(0))
	case waiting < full:
		return fmt.Sprintf("the client: its connections wait for the server %.0f %% of the time; it uses %.1f of %d cores",
			100*waiting, client, runtime.GOMAXPROCS(0))
	case commits > waiting/2:
		return fmt.Sprintf("commit latency: %d round trips of %.2f ms at least on %d connections", calls.roundTrips,
			milliseconds(b.latency.Commit.P50), connections)
	case usage.ServerKnown:
		return fmt.Sprintf("server CPU of %d connections: they are busy %.0f %% of the time, the server uses %.1f cores", connections, 100*waiting, server)
	}
	return fmt.Sprintf("the server, whose CPU cannot be seen from here: connections wait for it %.0f %% of the time", 100*waiting)
}
