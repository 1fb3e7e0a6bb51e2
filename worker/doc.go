// Package worker runs jobs.
//
// A Worker claims jobs of the kinds that it handles, in batches and with a
// lease on each, hands them to handlers in a bounded number of slots per
// queue, extends the leases while they run, and stores how they ended, in
// batches again, together with the next claim: one round trip and one commit.
//
// A lease that could not be extended in time is given up before it ends by
// the database's clock: the run's context is cancelled with ErrLeaseLost, and
// nothing that it reports is stored. Every write names the lease's owner and
// token, so that a run which goes on regardless changes nothing in the queue.
// A Go handler that ignores its context cannot be killed, only fenced; a
// program can: HandleCommand starts one for each job, HandleStream keeps
// processes that take job after job. HandleHTTP posts jobs to a server.
//
// Run a janitor as well (package janitor): it gives the jobs of dead workers
// to living ones and starts scheduled jobs.
package worker
