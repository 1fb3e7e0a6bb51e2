// Package worker runs jobs.
//
// A Worker claims jobs of the kinds that it handles, in batches and with one
// lease on each batch, hands them to handlers in a bounded number of slots per
// queue, extends the leases while they run, and stores how they ended, in
// batches again, together with the next claim: one round trip and one commit.
// A run that plainly succeeds is a number in its lease; every other end is
// written on the job's own row.
//
// For example, with a lease of 60 s: at 0 s a claim takes the jobs 41, 42 and 43
// under lease 900. 41 succeeds at 0.25 s and 42 fails at 0.40 s; the next round
// trip says of 41 in the lease that it took 250 ms, moves 42 back to the line, and
// claims more. 43 runs on: at 20 s its lease is extended, to 80 s. Had that not
// been possible until 55 s, its context would have ended then. At 70 s 43 has
// ended too, on its own row since it took longer than the lease can tell, and
// the lease moves to the history.
//
// A lease that could not be extended in time is given up before it ends by
// the database's clock: the run's context is cancelled with ErrLeaseLost, and
// nothing that it reports is stored. Every write names the lease's owner and
// token, so that a run which goes on regardless changes nothing in the queue.
// A Go handler that ignores its context cannot be killed, only fenced; a
// program can: package worker/programs runs jobs with programs of any language and
// with HTTP servers. What it needs of this package is in external.go.
//
// Run a janitor as well (package janitor): it gives the jobs of dead workers
// to living ones and starts scheduled jobs.
package worker
