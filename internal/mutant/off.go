//go:build !jobq_mutant

// Package mutant breaks jobq on purpose, to show that the fault tests would
// notice: with the build tag jobq_mutant, the environment variable JOBQ_MUTANT
// names one fault. Without the tag there is nothing here.
package mutant

// SetsApart says whether a worker fails jobs that no claim can read. It does.
func SetsApart() bool { return true }

// Polls says whether idle queues are polled. They are.
func Polls() bool { return true }

// Rescues says whether janitors do overdue work that another session's lock
// keeps from being done. They do.
func Rescues() bool { return true }

// Adopts says whether a worker ends what is left of a program whose supervisor
// was killed. It does.
func Adopts() bool { return true }

// LooksAfterBell says whether a worker looks, after a notification, for inserts
// that have left it to another one. It does.
func LooksAfterBell() bool { return true }

// IsPatient says whether a janitor leaves leases alone that could not be extended in an
// outage. It does.
func IsPatient() bool { return true }

// PatienceEnds says whether a janitor takes a lease that could not be extended in an outage
// when its owner has had the time. It does.
func PatienceEnds() bool { return true }

// HoldsFrozen says whether a frozen run waits until its lease is extended. It does.
func HoldsFrozen() bool { return true }

// SQL returns the query as it is.
func SQL(query string) string { return query }
