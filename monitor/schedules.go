package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/schedule"
)

const (
	// listedArgsMax is up to how many bytes args are in a list of schedules.
	listedArgsMax = 1000
	// schedulesMax bounds one page of schedules, of ticks, and of ticks to come.
	schedulesMax = 1000
)

// Schedule is a schedule and what has become of it.
type Schedule struct {
	jobq.Schedule
	CreatedAt   time.Time  `json:"created_at"`
	PausedAt    *time.Time `json:"paused_at,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	// NextAt is the next tick; nil while it is paused, and when there is none. It lies
	// in the past while no janitor runs, however far back, and while it does not work.
	NextAt *time.Time `json:"next_at,omitempty"`
	// Late is by how much NextAt is past, by the clock of the database.
	Late time.Duration `json:"late_ns,omitempty"`
	// LastTickAt is the latest tick, and LastJobID the job of the latest one that
	// added one: not a job that a person has wanted.
	LastTickAt *time.Time `json:"last_tick_at,omitempty"`
	LastJobID  int64      `json:"last_job_id,omitempty"`
	// LastLeftOut says that the latest tick added no job, since that of the one before
	// was unfinished: see jobq.OverlapSkip.
	LastLeftOut bool `json:"last_left_out,omitempty"`
	// Error is why it does not work, since ErrorAt or before, until it works again.
	// Failures counts how often in a row it did not.
	Error    string     `json:"error,omitempty"`
	ErrorAt  *time.Time `json:"error_at,omitempty"`
	Failures int        `json:"failures,omitempty"`
}

// Schedules returns up to limit schedules, 1 to 1000, in the order of their names,
// after a name; "" begins with the first. Args of more than 1000 bytes are left out.
func (m *Monitor) Schedules(ctx context.Context, after string, limit int) ([]Schedule, error) {
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	rows, err := m.queries.ScheduleList(ctx, listedArgsMax, after, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, dberror.Wrap(m.schema, "list schedules", err)
	}
	schedules := make([]Schedule, len(rows))
	for i, row := range rows {
		schedules[i] = scheduleOf(db.ScheduleGetRow(row))
	}
	return schedules, nil
}

func checkLimit(limit int) error {
	if limit < 1 || limit > schedulesMax {
		return fmt.Errorf("%w: limit must be 1 to %d, not %d", jobq.ErrInvalid, schedulesMax, limit)
	}
	return nil
}

// Schedule returns one schedule, with its args. ErrNotFound if there is none of
// that name.
func (m *Monitor) Schedule(ctx context.Context, name string) (Schedule, error) {
	row, err := m.scheduleRow(ctx, name)
	if err != nil {
		return Schedule{}, dberror.Wrap(m.schema, fmt.Sprintf("schedule %q", name), err)
	}
	return scheduleOf(row), nil
}

func (m *Monitor) scheduleRow(ctx context.Context, name string) (db.ScheduleGetRow, error) {
	row, err := m.queries.ScheduleGet(ctx, name)
	if errors.Is(err, pgx.ErrNoRows) {
		err = dberror.NotFound("no such schedule")
	}
	return row, err
}

func scheduleOf(row db.ScheduleGetRow) Schedule {
	s := Schedule{
		Schedule: jobq.Schedule{
			Name: row.Name, Cron: row.Cron, TimeZone: row.TimeZone, Every: seconds(row.EverySeconds), Kind: row.Kind, Args: row.Args,
			Queue: cmp.Or(row.Queue, row.KindQueue), Priority: row.KindPriority, MaxAttempts: int(cmp.Or(row.MaxAttempts, row.KindMaxAttempts)),
			Timeout:     db.Milliseconds(cmp.Or(row.TimeoutMs, row.KindTimeoutMs)),
			BackoffBase: db.Milliseconds(cmp.Or(row.BackoffBaseMs, row.KindBackoffBaseMs)),
			BackoffMax:  db.Milliseconds(cmp.Or(row.BackoffMaxMs, row.KindBackoffMaxMs)), Tags: row.Tags, Metadata: row.Metadata,
			PartitionKey: row.PartitionKey,
			CatchUp:      jobq.CatchUp(row.CatchUp), CatchUpMax: int(row.CatchUpMax), CatchUpWithin: seconds(row.CatchUpWithinSeconds),
			Overlap: jobq.Overlap(row.Overlap), Source: row.Source,
		},
		CreatedAt: db.Moment(row.CreatedAt), PausedAt: db.UTC(row.PausedAt), PausedBy: db.Text(row.PausedBy), PauseReason: db.Text(row.PauseReason),
		LastTickAt: db.UTC(row.LastTickAt), LastJobID: row.LastJobID.Int64, LastLeftOut: row.LastLeftOut, Error: db.Text(row.Error), ErrorAt: db.UTC(row.ErrorAt), Failures: int(row.Failures),
	}
	if row.Priority.Valid {
		s.Priority = row.Priority.Int16
	}
	if ticks, err := ticksOf(row); err == nil && row.PausedAt == nil {
		if next, ok := ticks.Next(row.CursorAt.Time); ok {
			s.NextAt, s.Late = &next, max(row.LookedAt.Time.Sub(next), 0)
		}
	}
	return s
}

func seconds(count int64) time.Duration { return time.Duration(count) * time.Second }

func ticksOf(row db.ScheduleGetRow) (schedule.Ticks, error) {
	return schedule.Of(row.Cron, cmp.Or(row.TimeZone, time.UTC.String()), seconds(row.EverySeconds))
}

// Tick is a moment at which a schedule has fired.
type Tick struct {
	At time.Time `json:"at"`
	// JobID is 0 when no job was added, since that of the tick before was unfinished.
	JobID int64 `json:"job_id,omitempty"`
	// State is that of the job now, "" when it is gone.
	State jobq.State `json:"state,omitempty"`
}

// Ticks returns up to limit ticks of a schedule, 1 to 1000, newest first. They are
// kept for 7 days.
func (m *Monitor) Ticks(ctx context.Context, name string, limit int) ([]Tick, error) {
	operation := fmt.Sprintf("ticks of schedule %q", name)
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	rows, err := m.queries.ScheduleTickList(ctx, name, int32(limit)) // #nosec G115 -- checked above
	if err != nil {
		return nil, dberror.Wrap(m.schema, operation, err)
	}
	ticks := make([]Tick, len(rows))
	for i, row := range rows {
		ticks[i] = Tick{At: db.Moment(row.TickAt), JobID: row.JobID.Int64, State: jobq.State(row.State)}
	}
	return ticks, nil
}

// After returns the ticks that follow a moment, up to limit: without asking the
// database. None if the expression or the time zone is not known.
func (s Schedule) After(moment time.Time, limit int) []time.Time {
	ticks, err := schedule.Of(s.Cron, cmp.Or(s.TimeZone, time.UTC.String()), s.Every)
	if err != nil {
		return nil
	}
	return ticksAfter(ticks, moment, limit)
}

func ticksAfter(ticks schedule.Ticks, moment time.Time, limit int) []time.Time {
	next := make([]time.Time, 0, limit)
	for at, ok := ticks.Next(moment); ok && len(next) < limit; at, ok = ticks.Next(at) {
		next = append(next, at)
	}
	return next
}

// NextTicks returns the next ticks of a schedule by the database's clock, up to
// limit, 1 to 1000, also while it is paused. ErrInvalid if its expression or time
// zone is not known, ErrNotFound if there is no schedule of that name.
func (m *Monitor) NextTicks(ctx context.Context, name string, limit int) ([]time.Time, error) {
	operation := fmt.Sprintf("next ticks of schedule %q", name)
	if err := checkLimit(limit); err != nil {
		return nil, fmt.Errorf("%s: %w", operation, err)
	}
	row, err := m.scheduleRow(ctx, name)
	if err != nil {
		return nil, dberror.Wrap(m.schema, operation, err)
	}
	ticks, err := ticksOf(row)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", operation, jobq.ErrInvalid, err)
	}
	return ticksAfter(ticks, row.LookedAt.Time, limit), nil
}
