// Package worker runs jobs.
//
// A Worker claims jobs of the kinds that it handles, in batches and with one
// lease on each batch, hands them to handlers in a bounded number of slots per
// queue, extends the leases while they run, and stores how they ended, in
// batches again, together with the next claim: one round trip and one commit.
// A run that plainly succeeds is a number in its lease; every other end is
// written on the job's own row.
//
// # The life of a job
//
// For example, with a lease of 60 s that is extended every 20 s. The queue has 3
// slots; jobs 41, 42 and 44 wait, and the transaction that inserts 43 is open.
//
//	 0.000 s  a claim is sent: up to 3 jobs from the head of the line
//	 0.002 s  it is answered: jobs 41, 42 and 44 under lease 900, until 60 s. The
//	          line is claimed up to 44. The lease says that all three may have begun,
//	          and 3 handlers begin. What a codec has encoded is
//	          decoded first; a job that cannot be decoded goes back, see unreadable.go
//	 0.100 s  43 is committed
//	 0.250 s  41 succeeds. The next round trip says so in lease 900 and claims one
//	          job. It looks back: it begins at the head of the line again, and not
//	          after 44, and so finds 43, under lease 901. When such a look takes
//	          long, the next one comes later: looks take a twentieth of the time
//	 0.400 s  42 returns an error. The next round trip moves it back to the line, to
//	          be tried again later, and gives lease 900 its full time anew
//	20.000 s  44 still runs: lease 900 is extended, until 80 s
//	40.000 s  the database does not answer, now and at each try that follows
//	75.000 s  5 s before lease 900 ends, the worker gives it up: 44's context ends
//	          with ErrLeaseLost, and nothing that 44 reports is stored
//	80.000 s  the lease ends, and a janitor may give 44 to another worker
//
// Had the database answered, and 44 succeeded at 70 s, its end would be on its own
// row, since it took longer than the lease can tell, and lease 900 would move to the
// history in the same round trip.
//
// If jobs are short, a claim takes more jobs than slots are free. Then a later round trip
// stores in the lease that these may begin, and only then they do. So whoever finds the lease
// expired knows which jobs have never begun, and takes no attempt from them: package
// internal/ahead has an example.
//
// Every write names the lease's owner and token, so that a run which goes on
// regardless changes nothing in the queue. A Go handler that ignores its context
// cannot be killed, only fenced; a program can: package worker/programs runs jobs with
// programs of any language and with HTTP servers. What it needs of this package is
// in external.go.
//
// Run also runs a janitor, unless Config.NoJanitor is set: it gives the jobs of dead workers
// to living ones, and starts scheduled jobs and retries. Of the janitors of many workers, one
// leads. janitor.go starts it; else the two know nothing of each other and meet in rows.
//
// # The end of a worker
//
// There are three ways to end a worker. Each takes no new work and gives back what has
// not started. They differ in how long they wait for handlers that run:
//
//	Drain                     as long as they take
//	the end of Run's context  up to Config.DrainTimeout
//	DrainNow                  not at all
//
// A later one shortens the wait of an earlier one. A handler for which there is no time
// left has its context cancelled, with ErrDrained as the cause, and its job goes back
// without losing an attempt.
//
// # Testing a handler
//
// NewTestJob makes a job without a database, and tells what a handler has reported.
// To check the error that it has returned, use errors.As: see RetryError, SnoozeError,
// DiscardError, CancelError and ReleaseError.
//
// # Where to read on
//
// A job goes through these files: queue.go, the loop of a queue; claim.go, the claim
// that gets the job; run.go, its handler; end.go, how it ended; exchange.go, the
// round trip that stores that, and store.go, what the answer says. load.go is what a
// queue has in hand meanwhile, begin.go which of it may begin, and reports.go what a run has reported; keeper.go extends
// the leases; unanswered.go releases the jobs of claims whose answers were lost. In
// internal, package line decides what to claim, package leases until when a lease is
// held, package ahead which jobs may begin, and package waking when an idle queue looks for jobs.
package worker
