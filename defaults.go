package jobq

import "time"

// Defaults that stand in the database, for callers in any language. A test compares
// them with what the database does.
const (
	// DefaultQueue is the queue of a job that names none.
	DefaultQueue = "default"
	// DefaultMaxAttempts is how many runs of a job may end badly.
	DefaultMaxAttempts = 25
	// DefaultBackoffBase is the longest wait after the first failed attempt.
	DefaultBackoffBase = time.Second
	// DefaultBackoffMax is the longest wait after any failed attempt.
	DefaultBackoffMax = 24 * time.Hour
	// DefaultLease is how long a worker may hold a job without extending its lease.
	DefaultLease = 60 * time.Second
	// DefaultExtendEvery is how often a worker extends a lease of DefaultLease: a
	// third of the lease, whatever that is.
	DefaultExtendEvery = DefaultLease / 3
	// DefaultAgeAfter is how long the first job of a priority waits before the priority
	// has its turns among more urgent ones.
	DefaultAgeAfter = 5 * time.Minute
)
