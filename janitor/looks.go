package janitor

import (
	"context"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// settleBatch is how many children of jobs that are over one step handles at most.
const settleBatch = 500

// looks says where to begin in the table dependency_look. Each of its rows is a job at which the
// janitor must look because of a dependency: a parent that is over or may be, or a job that may no
// longer need to wait.
//
// While any transaction is open, the index keeps an entry of every row that was handled since. So
// a look begins 2 s before the last row that a step has handled. Every 10 s, one begins at the
// start, for rows of transactions that were open for longer than 2 s.
type looks struct {
	due   bool      // at least one row is due
	from  time.Time // where the last look has begun; zero: at the start
	last  time.Time // when the last row that a step has handled was due, by the server's clock
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

// notified handles a notification of a new row, which is due since epoch, in seconds since 1970. If the
// usual look would miss it, because its transaction was open for long, the next look begins at the
// start. It does so at most once a second, because anybody can send notifications.
func (l *looks) notified(epoch float64) {
	if !l.from.IsZero() && epoch < float64(l.from.UnixMicro())/1e6 && time.Since(l.whole) >= time.Second {
		l.whole = time.Time{}
	}
}

// advance makes the next step begin 2 s before the last row that was handled.
func (l *looks) advance() {
	if from := l.last.Add(-lateCommit); from.After(l.from) {
		l.from = from
	}
}

// settle handles a batch of the due rows of dependency_look, and says whether there may be more.
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
