// Package jobq is a job queue inside PostgreSQL.
//
// A [Client] enqueues jobs, also inside the caller's transaction, finds them and
// cancels them. Package worker runs jobs with Go handlers or executables, package
// janitor recovers what dead workers leave, package migrate makes the tables. Package
// monitor shows queues, workers and what happened; package operator acts on behalf of
// a person, and has it recorded: requeue, delete, edit, pause a queue, undo.
//
// # The promise
//
// Every committed job is run at least once until it succeeds, is cancelled,
// or has used up its max_attempts, or its max_lost. At most one unexpired lease exists per job
// at any time, by the database's clock. A result is stored only from the
// lease that is current. Effects outside the database can happen more than
// once: make them idempotent, by the run's IdempotencyKey, or hand the lease token
// to the outside system so that it can refuse the stale one.
//
// # States
//
//	scheduled ──▶ available ──▶ running ──▶ completed
//	    ▲             ▲            │   ├──▶ failed
//	    └──── retry, snooze ───────┤   └──▶ cancelled
//	                  └─ release ──┘
//
// A job is scheduled while its run_at is in the future, for the first run or for
// another one. Before that it is waiting, if it waits for other jobs. Completed,
// failed and cancelled are final, except for an operator's requeue.
//
// # Words
//
// Each has one meaning in SQL, Go, the command line and the docs.
// A job is a piece of work of a kind, with args, in a queue; lower priority
// numbers run first. A worker is a process that claims jobs and gives them to
// handlers; its id is the owner of the leases it holds. A lease is the
// exclusive right to a job until it expires; a heartbeat extends it; the lease
// token is the lease's id, larger with each claim, and fences every write. An attempt is a
// run that counts against max_attempts: one that failed, timed out, or was
// lost. The janitor reaps expired leases. Finish ends a run; release gives a
// job back unharmed; snooze postpones it; drain lets a worker end its jobs
// and take no new ones; requeue makes a finished job available again. A schedule
// adds jobs by itself at the moments that its cron expression or interval names;
// each such moment is a tick.
package jobq
