package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// aheadShare is by which share of its period a chore is asked after ahead of its
	// time, together with others: so chores whose periods are multiples of each other
	// come to share one question.
	aheadShare = 10
	// findTimeout bounds that question, which may wait for a table that somebody has
	// locked. It borrows its connection from others.
	findTimeout = 3 * time.Second
)

// passOver asks which of the chores that are done often would find nothing, in one
// statement for all that are due, and counts those as done: an idle janitor asks this,
// and nothing else. If there is no answer, each is done, and says itself what is wrong.
func (h *housekeeper) passOver(ctx context.Context) {
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
	answer, err := j.schema.Queries(j.pool()).ChoresFind(ctx, names, db.Interval(workerSilence), h.history.knownRows(j.choreTimes.stands))
	if err != nil {
		j.log.Debug("which chores are to be done is unknown", "error", err)
		answer = db.ChoresFindRow{HistoryRows: h.history.seen, Found: names}
	}
	h.history.seen = answer.HistoryRows
	for _, c := range asked {
		if c.found = slices.Contains(answer.Found, c.name); !c.found {
			h.finished(c)
		}
	}
}

// askedAfter are the chores to ask after now: if one of those that are done often is
// due, all that are, or will be soon.
func (h *housekeeper) askedAfter(now time.Time) (asked []*chore) {
	due := false
	for _, c := range h.chores {
		at := h.dueAt(c)
		if !c.often || c.again.After(now) || now.Before(at.Add(-h.every(c)/aheadShare)) {
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

// history is what is known of the need for new statistics of the history. There is none
// while it has as many rows as when there was none, until those that there are get old.
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

// looked is told whether statistics were made. If so, it is looked again: a day of the
// history may have been left out.
func (x *history) looked(analyzed bool) {
	x.known, x.knownAt = x.seen, time.Now()
	if analyzed {
		x.knownAt = time.Time{}
	}
}
