package janitor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/schedule"
	"github.com/jobq-dev/jobq/monitor"
)

const (
	// onTime is how late a tick may be with catch_up none. When a leader dies, another
	// janitor leads within that time.
	onTime = time.Minute
	// tickRest is how long a schedule rests that did not work, twice as long after
	// each failure, at most tickRestMax.
	tickRest    = time.Second
	tickRestMax = time.Minute
)

// defaultTickLimits are the limits of one schedule's insert of jobs. The other schedules wait
// meanwhile.
var defaultTickLimits = limits{statement: 10 * time.Second, lock: time.Second}

// brokenError is the error of a schedule that is invalid, which Go code finds without the database.
type brokenError struct{ error }

func isBroken(err error) bool { return errors.As(err, &brokenError{}) }

// fires is the plan of one look at a schedule.
type fires struct {
	ticks  []time.Time // whose jobs are to be added
	next   *time.Time  // the first one to come; nil: none
	missed time.Time   // the first of those that are left out; zero: none is
	until  time.Time   // the plan covers all ticks up to this time
}

// planFires computes which ticks of a schedule are to be made. For example, an hourly schedule
// was last fired up to 07:30, and now it is 10:00:05:
//
//	none    10:00; and nothing if it were 10:01:05
//	latest  10:00
//	all     08:00, 09:00, 10:00; the last two with a catch_up_max of 2, or a
//	        catch_up_within of 90 minutes
func planFires(row db.ScheduleLookRow) (f fires, err error) {
	ticks, err := schedule.Of(row.Cron, row.TimeZone, time.Duration(row.EverySeconds)*time.Second)
	if err != nil {
		return f, brokenError{err}
	}
	now, cursor := row.LookedAt.Time, row.CursorAt.Time
	f.until = now
	within, count := time.Duration(row.CatchUpWithinSeconds)*time.Second, 1
	switch row.CatchUp {
	case "none":
		within = min(within, onTime)
	case "all":
		count = int(row.CatchUpMax)
	}
	f.ticks = ticks.Last(later(cursor, now.Add(-within)), now, count)
	first, ok := ticks.Next(cursor)
	if ok && !first.After(now) && (len(f.ticks) == 0 || first.Before(f.ticks[0])) {
		f.missed = first
	}
	if next, ok := ticks.Next(later(cursor, now)); ok {
		f.next = &next
	}
	return f, nil
}

// cut keeps the first count ticks. The schedule stays due, so the next look makes the others.
func (f *fires) cut(count int, now time.Time) {
	if count > 0 && len(f.ticks) > count {
		f.ticks, f.until, f.next = f.ticks[:count], f.ticks[count-1], &now
	}
}

// isStatementTimeout says whether the server has ended a statement that took too long.
func isStatementTimeout(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == "57014"
}

// failureText says why a schedule did not work, for its row. It leaves out the words that are
// the same in all errors, and the server's details, which may quote values.
func failureText(err error) string {
	var answer *pgconn.PgError
	if errors.As(err, &answer) {
		return fmt.Sprintf("%s (SQLSTATE %s)", answer.Message, answer.Code)
	}
	return err.Error()
}

// tellOfSchedule tells that a schedule does not work.
func (j *Janitor) tellOfSchedule(ctx context.Context, name, text string, againIn time.Duration) {
	j.log.Warn("schedule failed", "schedule", name, "error", text, "again_in", againIn)
	j.tell(ctx, Event{Type: monitor.EventError, Err: fmt.Errorf("schedule %q: %s", name, text)})
}
