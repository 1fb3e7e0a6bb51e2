package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// settleBatch is with how many children of jobs that are over one step deals.
const settleBatch = 500

// looks is what is known of the jobs to look at because others wait for them: see the
// table dependency_look.
//
// While any transaction is open, the index keeps an entry of every row that was dealt with
// since. So a look begins 2 s before the last row that a step has come to; every 10 s one
// begins at the start, for rows of transactions that were open for longer.
type looks struct {
	due   bool      // at least one is
	from  time.Time // where the last look has begun; zero: at the start
	last  time.Time // when the last one that a step has come to was due, by the server's clock
	whole time.Time // when the last look from the start began
}

// begin chooses where a look begins.
func (l *looks) begin() time.Time {
	l.from = l.last.Add(-lateCommit)
	if l.last.IsZero() || time.Since(l.whole) >= fromStartEvery {
		l.whole, l.from = time.Now(), time.Time{}
	}
	return l.from
}

// heard is told that there is something to be looked at, and since when it was due. What
// the usual look does not reach, as its transaction was open for long, makes the next one
// begin at the start, once a second at most: anybody may notify.
func (l *looks) heard(epoch float64) {
	if !l.from.IsZero() && epoch < float64(l.from.UnixMicro())/1e6 && time.Since(l.whole) >= time.Second {
		l.whole = time.Time{}
	}
}

// advance has the next step begin later, past what the last one has dealt with.
func (l *looks) advance() {
	if from := l.last.Add(-lateCommit); from.After(l.from) {
		l.from = from
	}
}

// settle does a step of what is to be done about jobs that others wait for, and says
// whether there may be more.
func (p *passes) settle(ctx context.Context) (more bool, err error) {
	if !p.looks.due {
		return false, nil
	}
	ran, err := p.try(ctx, func(ctx context.Context, on session) error {
		row, err := p.janitor.schema.Queries(on).DependencyStep(ctx, db.DueFrom(p.looks.from), settleBatch)
		if err == nil && row.Looked > 0 {
			more = row.More
			p.looks.last = row.LastAt.Time
			p.looks.advance()
			p.taken += int64(row.Looked)
		}
		return err
	})
	if err != nil || !ran {
		return false, err
	}
	p.looks.due = more
	return more, nil
}
