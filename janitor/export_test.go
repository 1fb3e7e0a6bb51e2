package janitor

import "time"

// TickLimit makes one schedule's insert of jobs end sooner.
func TickLimit(statement time.Duration) func(*Janitor) {
	return func(j *Janitor) { j.tickLimits.statement = statement }
}

// LookAtTablesEvery makes a janitor look sooner whether it still works with the tables.
func LookAtTablesEvery(every time.Duration) func(*Janitor) {
	return func(j *Janitor) { j.tablesEvery = every }
}

// ChoreTimes makes a janitor's chores rest and end sooner: the limit of each, the
// rests after failures, and how long one that is done rests; 0 leaves it.
func ChoreTimes(statement, rest, every time.Duration) func(*Janitor) {
	return func(j *Janitor) {
		if statement > 0 {
			j.choreTimes.limits.statement = statement
		}
		if rest > 0 {
			j.choreTimes.rest, j.choreTimes.lockRest = rest, rest
		}
		j.choreTimes.every = every
	}
}
