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

// DirectRetry makes a janitor try sooner again to make the direct connection.
func DirectRetry(every time.Duration) func(*Janitor) {
	return func(j *Janitor) { j.directRetry = every }
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
		if j.choreTimes.every = every; every > 0 {
			j.choreTimes.stands = every
		}
	}
}

// Looks is where the looks at jobs begin for which others wait.
type Looks = looks

// Begin chooses where a look begins.
func (l *looks) Begin() time.Time { return l.begin() }

// Heard is told that something was due since then.
func (l *looks) Heard(at time.Time) { l.notified(float64(at.UnixMicro()) / 1e6) }

// Stepped is told that a step has dealt with all that was due until then.
func (l *looks) Stepped(until time.Time) time.Time {
	l.last = until
	l.advance()
	return l.from
}

// HistoryStands is for how long a janitor asks for no statistics of the history while
// it does not grow.
func HistoryStands(stands time.Duration) func(*Janitor) {
	return func(j *Janitor) { j.choreTimes.stands = stands }
}

// Patience is what a janitor knows of outages.
type Patience struct{ patience }

// Remember is told when another janitor has last lived.
func (p *Patience) Remember(at time.Time) { p.remember(at) }

// Failed is told how a call has failed.
func (p *Patience) Failed(err error) { p.failed(err) }

// Answered is told of an answer, and says whether there was an outage before.
func (p *Patience) Answered(at, started time.Time, allowed time.Duration) bool {
	return p.answered(at, started, allowed)
}

// Known are the outages.
func (p *Patience) Known() (known [][2]time.Time) {
	since, until := p.outages()
	for i := range since {
		known = append(known, [2]time.Time{since[i].Time, until[i].Time})
	}
	return known
}
