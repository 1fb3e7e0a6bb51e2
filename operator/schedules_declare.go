package operator

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/jobq-dev/jobq"
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
	// Schedules are those declared, at most 1000, each name once. Their Source is set.
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

// DeclarationError is an error of one schedule of a declaration.
type DeclarationError struct {
	Schedule string // its name
	err      error
}

func (e *DeclarationError) Error() string { return e.err.Error() }

func (e *DeclarationError) Unwrap() error { return e.err }

// declaredMax is how many schedules a declaration may have: one transaction writes them.
const declaredMax = 1000

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
// written, and no privilege is needed but to read. All is done, or nothing; of
// declarations at once, one waits for the other. ErrInvalid says what is wrong with the
// declaration; an error of one of its schedules is a *DeclarationError.
func (o *Operator) DeclareSchedules(ctx context.Context, d Declaration) (Declared, error) {
	operation := fmt.Sprintf("declare schedules of %q", d.App)
	switch {
	case !appPattern.MatchString(d.App):
		return Declared{}, fmt.Errorf("%s: %w: app must be 1 to 100 letters, digits, dots, dashes and underscores", operation, jobq.ErrInvalid)
	case d.Version < 0:
		return Declared{}, fmt.Errorf("%s: %w: version must be 0 or more, not %d", operation, jobq.ErrInvalid, d.Version)
	case len(d.Schedules) > declaredMax:
		return Declared{}, fmt.Errorf("%s: %w: an application may declare at most %d schedules, not %d: give some of them to another app", operation, jobq.ErrInvalid, declaredMax, len(d.Schedules))
	}
	if err := o.checkTexts(operation); err != nil {
		return Declared{}, err
	}
	d.Schedules = slices.SortedFunc(slices.Values(d.Schedules), func(a, b jobq.Schedule) int { return strings.Compare(a.Name, b.Name) })
	for i := range d.Schedules {
		s := &d.Schedules[i]
		s.Source = d.source()
		if err := checkSchedule(s); err != nil {
			return Declared{}, &DeclarationError{s.Name, fmt.Errorf("%s: %w: %w", setting(s.Name), jobq.ErrInvalid, err)}
		}
		if i > 0 && d.Schedules[i-1].Name == s.Name {
			return Declared{}, &DeclarationError{s.Name, fmt.Errorf("%s: %w: it is declared twice", setting(s.Name), jobq.ErrInvalid)}
		}
	}
	plan, err := dberror.Retry(ctx, func() (*declarationPlan, error) { return planDeclaration(ctx, o.queries, &d) })
	if err != nil {
		return Declared{}, dberror.Wrap(o.schema, operation, err)
	}
	if len(plan.steps) == 0 {
		return plan.done, nil
	}
	var at declarationStep
	done, err := dberror.Retry(ctx, func() (Declared, error) {
		at = declarationStep{operation: operation}
		return o.declare(ctx, &d, &at)
	})
	if err = dberror.Wrap(o.schema, at.operation, err); err != nil && at.schedule != "" {
		err = &DeclarationError{at.schedule, err}
	}
	return done, err
}

// declarationStep is what a declaration is doing, for errors.
type declarationStep struct{ operation, schedule string }

// declare plans and writes in one transaction. Of two declarations, the second one sees
// what the first has done: the turn is taken before anything is read, and each statement
// has its own snapshot.
func (o *Operator) declare(ctx context.Context, d *Declaration, at *declarationStep) (done Declared, err error) {
	err = pgx.BeginTxFunc(ctx, o.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "set local idle_in_transaction_session_timeout = '1min'"); err != nil {
			return err
		}
		queries := o.schema.Queries(tx)
		if err := queries.ScheduleTurn(ctx); err != nil {
			return err
		}
		plan, err := planDeclaration(ctx, queries, d)
		if err != nil {
			return err
		}
		whole := *at
		for _, write := range plan.steps {
			*at = declarationStep{operation: write.operation}
			if write.declared {
				at.schedule = write.name
			}
			auditID, err := write.do(ctx, queries, o.actor)
			if err != nil {
				return err
			}
			if auditID != 0 {
				*write.done = append(*write.done, write.name)
			}
		}
		done = plan.done
		*at = whole
		return nil
	})
	if err != nil {
		return Declared{}, err
	}
	return done, nil
}
