package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// A chore is asked about up to 1/aheadShare of its period early, together with others. So
	// chores whose periods are multiples of each other soon share one query.
	aheadShare = 10
	// findTimeout is the longest time of that query, which may wait for a locked table. It is
	// short because the query uses a connection of the pool that others need.
	findTimeout = 3 * time.Second
)

// skipIdle asks, in one statement, which of the frequent chores that are due would find nothing to do,
// and counts these as done. So an idle janitor sends only this statement. If it fails, all of them
// are done, and each reports its own error.
func (h *housekeeper) skipIdle(ctx context.Context) {
	asked := h.askedAfter(time.Now())
	if len(asked) == 0 {
		return
	}
	names := make([]string, len(asked))
	for i, c := range asked {
		names[i] = c.name
	}
	j := h.janitor
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	sent := time.Now()
	answer, err := j.schema.Queries(j.pool()).ChoresFind(ctx, names, db.Interval(workerSilence), h.history.knownRows(j.choreTimes.stands))
	if err != nil {
		j.log.Debug("which chores are to be done is unknown", "error", err)
		answer = db.ChoresFindRow{HistoryRows: h.history.seen, Found: names}
	} else {
		j.ticker.found(sent, answer.HasSchedule)
	}
	h.history.seen = answer.HistoryRows
	isIdle := !slices.ContainsFunc(answer.Found, func(name string) bool { return name != analyzeName }) // that counts rows now and then
	h.quiet = isIdle && (h.quiet || slices.ContainsFunc(asked, func(c *chore) bool { return c.name == rollUpName }))
	for _, c := range asked {
		if c.found = slices.Contains(answer.Found, c.name); !c.found {
			h.finished(c)
		}
	}
}

// askedAfter are the chores to ask about now. If a frequent chore is due, these are all frequent chores
// that are due or will be soon, or all frequent chores while nothing happens; otherwise none.
func (h *housekeeper) askedAfter(now time.Time) (asked []*chore) {
	due := false
	for _, c := range h.chores {
		at := h.dueAt(c)
		isSoon := h.quiet || !now.Before(at.Add(-h.every(c)/aheadShare))
		if !c.often || c.again.After(now) || !isSoon {
			continue
		}
		asked = append(asked, c)
		due = due || !now.Before(at)
	}
	if !due {
		return nil
	}
	return asked
}

// history is what is known about whether the history needs new statistics. While it has as many rows as
// when it needed none, it is taken to need none, for a time: see knownRows.
type history struct {
	seen    float64   // how many rows it had at the last question
	known   float64   // how many it had when it needed none
	knownAt time.Time // zero: that is not known
}

// knownRows is how many rows the history had when it needed no statistics; -1, which it
// never has, when that is not known or longer ago than stands.
func (x *history) knownRows(stands time.Duration) float64 {
	if x.knownAt.IsZero() || time.Since(x.knownAt) >= stands {
		return -1
	}
	return x.known
}

// looked records a look at the statistics. analyzed says that it made some: then the next look comes
// as usual, because another day of the history may need statistics as well.
func (x *history) looked(analyzed bool) {
	x.known, x.knownAt = x.seen, time.Now()
	if analyzed {
		x.knownAt = time.Time{}
	}
}
