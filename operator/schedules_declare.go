package operator

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Declaration is all schedules that an application wants there to be.
type Declaration struct {
	// App names the application: 1 to 100 letters, digits, dots, dashes and
	// underscores. It is the Source of its schedules.
	App string
	// Version is that of the declaration, from 0 on: one with a lower version than
	// what is there changes nothing. Default 0.
	Version int
	// Schedules are those declared. Their Source is set.
	Schedules []jobq.Schedule
}

// Declared is what DeclareSchedules has done, by the names of schedules.
type Declared struct {
	Changed  []string `json:"changed"`  // made, or changed
	Enabled  []string `json:"enabled"`  // declared again, after they were disabled
	Disabled []string `json:"disabled"` // declared no more
	// Refused are those declared whose names schedules have that the application has
	// not declared: they are left alone.
	Refused []string `json:"refused"`
	// Newer is the version that is there, when it is newer: nothing was done then.
	Newer int `json:"newer,omitempty"`
}

// disabledBy begins the reason of the pause of a schedule that is declared no more.
const disabledBy = "declared no more by "

var appPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// source is who declares, as the schedules have it: "billing, version 7".
func (d *Declaration) source() string {
	if d.Version == 0 {
		return d.App
	}
	return fmt.Sprintf("%s, version %d", d.App, d.Version)
}

// versionOf reads source. It says whether that is the application's.
func (d *Declaration) versionOf(source string) (version int, own bool) {
	rest, own := strings.CutPrefix(source, d.App)
	if !own || rest == "" {
		return 0, own
	}
	digits, own := strings.CutPrefix(rest, ", version ")
	version, err := strconv.Atoi(digits)
	return version, own && err == nil
}

// DeclareSchedules makes the schedules of an application what it declares. One that it
// declares no more is disabled: paused, until it is declared again. Schedules of others,
// and those made by hand, are left alone, and so is a pause that a person has made.
//
//	there is             declared        it comes to
//	-                    report          report is made
//	report of billing    report          report is changed, if it differs
//	sync of billing      -               sync is disabled
//	clean, by hand       clean           clean stays as it is, and is in Refused
//
// It may be called whenever a program starts: where all is so already, nothing is
// written. ErrInvalid says what is wrong with a schedule; those before it by name stay
// as they were declared then, and calling it again goes on.
func (o *Operator) DeclareSchedules(ctx context.Context, d Declaration) (Declared, error) {
	done := Declared{Changed: []string{}, Enabled: []string{}, Disabled: []string{}, Refused: []string{}}
	operation := fmt.Sprintf("declare schedules of %q", d.App)
	switch {
	case !appPattern.MatchString(d.App):
		return done, fmt.Errorf("%s: %w: app must be 1 to 100 letters, digits, dots, dashes and underscores", operation, jobq.ErrInvalid)
	case d.Version < 0:
		return done, fmt.Errorf("%s: %w: version must be 0 or more, not %d", operation, jobq.ErrInvalid, d.Version)
	}
	if err := o.checkTexts(operation); err != nil {
		return done, err
	}
	there, err := o.allSchedules(ctx, operation)
	if err != nil {
		return done, err
	}
	for _, row := range there {
		of, _ := d.versionOf(row.Source)
		by, _ := d.versionOf(strings.TrimPrefix(db.Text(row.PauseReason), disabledBy))
		done.Newer = max(done.Newer, of, by)
	}
	if done.Newer > d.Version {
		return done, nil
	}
	done.Newer = 0
	wanted := slices.SortedFunc(slices.Values(d.Schedules), func(a, b jobq.Schedule) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range wanted {
		row, found := there[s.Name]
		if err := o.declare(ctx, &d, s, row, found, &done); err != nil {
			return done, err
		}
		delete(there, s.Name)
	}
	return done, o.disable(ctx, &d, there, &done)
}

// allSchedules are all schedules by their names: people have made each of them.
func (o *Operator) allSchedules(ctx context.Context, operation string) (map[string]db.ScheduleListRow, error) {
	const page = 1000
	all := make(map[string]db.ScheduleListRow)
	for after := ""; ; {
		rows, err := dberror.Retry(ctx, func() ([]db.ScheduleListRow, error) { return o.queries.ScheduleList(ctx, 0, after, page) })
		if err != nil {
			return nil, dberror.Wrap(o.schema, operation, err)
		}
		for _, row := range rows {
			all[row.Name] = row
			after = row.Name
		}
		if len(rows) < page {
			return all, nil
		}
	}
}

// declare makes one schedule what is declared.
func (o *Operator) declare(ctx context.Context, d *Declaration, s jobq.Schedule, row db.ScheduleListRow, found bool, done *Declared) error {
	if _, own := d.versionOf(row.Source); found && !own {
		done.Refused = append(done.Refused, s.Name)
		return nil
	}
	s.Source = d.source()
	auditID, err := o.SetSchedule(ctx, s)
	if err != nil {
		return err
	}
	if auditID != 0 {
		done.Changed = append(done.Changed, s.Name)
	}
	if strings.HasPrefix(db.Text(row.PauseReason), disabledBy) {
		if _, err := o.ResumeSchedule(ctx, s.Name); err != nil {
			return err
		}
		done.Enabled = append(done.Enabled, s.Name)
	}
	return nil
}

// disable pauses those of the application that are left: it declares them no more.
func (o *Operator) disable(ctx context.Context, d *Declaration, left map[string]db.ScheduleListRow, done *Declared) error {
	names := make([]string, 0, len(left))
	for name, row := range left {
		if _, own := d.versionOf(row.Source); own && row.PausedAt == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := o.PauseSchedule(ctx, name, disabledBy+d.source()); err != nil {
			return err
		}
		done.Disabled = append(done.Disabled, name)
	}
	return nil
}
