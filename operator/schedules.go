package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
	"github.com/jobq-dev/jobq/internal/schedule"
	"github.com/jobq-dev/jobq/internal/storable"
)

// SetSchedule makes a schedule, or changes the one of that name into this one: what
// is left out gets its default. It returns the id of its entry in the audit, for
// Undo, or 0 when it is so already: then it is not touched, so that a program may set
// its schedules whenever it starts, and no privilege is needed but to read. With another cron expression, interval or time
// zone, its ticks are those from now on. A paused one stays paused. ErrInvalid says
// what is wrong with it.
func (o *Operator) SetSchedule(ctx context.Context, s jobq.Schedule) (auditID int64, err error) {
	operation := setting(s.Name)
	if err := o.checkTexts(operation); err != nil {
		return 0, err
	}
	if err := checkSchedule(&s); err != nil {
		return 0, fmt.Errorf("%s: %w: %w", operation, jobq.ErrInvalid, err)
	}
	if row, err := o.queries.ScheduleGet(ctx, s.Name); err == nil && isSchedule((*db.ScheduleListRow)(&row), &s) {
		return 0, nil
	}
	params := setParams(&s, o.actor)
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.ScheduleSet(ctx, params) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// setting is what errors of setting a schedule begin with.
func setting(name string) string { return fmt.Sprintf("set schedule %q", name) }

// setParams is a schedule, checked, as the database takes it.
func setParams(s *jobq.Schedule, actor string) db.ScheduleSetParams {
	return db.ScheduleSetParams{
		Name: s.Name, Cron: s.Cron, Every: db.IntervalOrNull(s.Every), TimeZone: s.TimeZone, Kind: s.Kind, Args: s.Args, Queue: s.Queue,
		Priority: int64(s.Priority), MaxAttempts: int64(s.MaxAttempts), Timeout: db.IntervalOrNull(s.Timeout),
		BackoffBase: db.IntervalOrNull(s.BackoffBase), BackoffMax: db.IntervalOrNull(s.BackoffMax), Tags: s.Tags, Metadata: s.Metadata,
		PartitionKey: s.PartitionKey,
		CatchUp:      string(s.CatchUp), CatchUpMax: int32(s.CatchUpMax), // #nosec G115 -- checked by checkSchedule
		CatchUpWithin: db.IntervalOrNull(s.CatchUpWithin), Overlap: string(s.Overlap), Source: s.Source, Actor: actor,
	}
}

// checkSchedule refuses what the database cannot check, or not say as well.
func checkSchedule(s *jobq.Schedule) error {
	for _, value := range []struct{ name, text string }{
		{"name", s.Name},
		{"cron", s.Cron},
		{"time_zone", s.TimeZone},
		{"kind", s.Kind},
		{"queue", s.Queue},
		{"partition_key", s.PartitionKey},
		{"catch_up", string(s.CatchUp)},
		{"overlap", string(s.Overlap)},
		{"source", s.Source},
	} {
		if err := storable.Text(value.name, value.text); err != nil {
			return err
		}
	}
	if err := cmp.Or(storable.Count("max_attempts", s.MaxAttempts), storable.Tags(s.Tags), storable.JSON("args", s.Args), storable.JSON("metadata", s.Metadata)); err != nil {
		return err
	}
	switch {
	case s.Cron == "" && s.Every == 0:
		return fmt.Errorf("either cron or every must be given")
	case s.Cron != "" && s.Every != 0:
		return fmt.Errorf("cron and every must not be given both")
	case s.CatchUpMax < 0 || s.CatchUpMax > 1000:
		return fmt.Errorf("catch_up_max must be 1 to 1000, not %d", s.CatchUpMax)
	}
	_, err := schedule.Of(s.Cron, cmp.Or(s.TimeZone, time.UTC.String()), s.Every)
	return err
}

// PauseSchedule stops a schedule until ResumeSchedule: once it returns, nothing
// fires. The reason is for people, and may be empty. It returns the id of its entry
// in the audit, for Undo, or 0 when the schedule was paused already. ErrNotFound if
// there is none of that name.
func (o *Operator) PauseSchedule(ctx context.Context, name, reason string) (auditID int64, err error) {
	operation := fmt.Sprintf("pause schedule %q", name)
	if err := o.checkTexts(operation, argument{"name", name}, argument{"reason", reason}); err != nil {
		return 0, err
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) {
		return o.queries.SchedulePause(ctx, name, db.TextOrNull(reason), o.actor)
	})
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// ResumeSchedule lets a schedule fire again, at the ticks from now on. It returns
// the id of its entry in the audit, for Undo, or 0 when it was not paused.
// ErrNotFound if there is none of that name.
func (o *Operator) ResumeSchedule(ctx context.Context, name string) (auditID int64, err error) {
	operation := fmt.Sprintf("resume schedule %q", name)
	if err := o.checkTexts(operation, argument{"name", name}); err != nil {
		return 0, err
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.ScheduleResume(ctx, name, o.actor) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// RemoveSchedule forgets a schedule. Jobs that it has added stay. It returns the id
// of its entry in the audit, for Undo. ErrNotFound if there is none of that name.
func (o *Operator) RemoveSchedule(ctx context.Context, name string) (auditID int64, err error) {
	operation := fmt.Sprintf("remove schedule %q", name)
	if err := o.checkTexts(operation, argument{"name", name}); err != nil {
		return 0, err
	}
	auditID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.ScheduleRemove(ctx, name, o.actor) })
	return auditID, dberror.Wrap(o.schema, operation, err)
}

// RunSchedule adds the job of a schedule now, whatever its ticks are and also when
// it is paused, and returns its id. ErrNotFound if there is none of that name.
func (o *Operator) RunSchedule(ctx context.Context, name string) (jobID int64, err error) {
	operation := fmt.Sprintf("run schedule %q", name)
	if err := o.checkTexts(operation, argument{"name", name}); err != nil {
		return 0, err
	}
	jobID, err = dberror.Retry(ctx, func() (int64, error) { return o.queries.ScheduleRun(ctx, name, o.actor) })
	return jobID, dberror.Wrap(o.schema, operation, err)
}
