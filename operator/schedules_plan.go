package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// comparedArgsMax is up to how many bytes args are read to be compared: longer ones
	// are left to the database.
	comparedArgsMax = 64 << 10
	// comparedPage is how many schedules are read at once.
	comparedPage = 100
)

// declarationPlan is what a declaration comes to, and what is to be written for it. What
// is written is in done when it has been.
type declarationPlan struct {
	done  Declared
	steps []declarationWrite
}

// declarationWrite is one of the writes of a plan.
type declarationWrite struct {
	operation string
	name      string    // of the schedule
	declared  bool      // and not one that is declared no more
	done      *[]string // has the name, if there was something to do
	do        func(ctx context.Context, queries *db.Queries, actor string) (auditID int64, err error)
}

// planDeclaration compares what is there with what is declared, and writes nothing.
func planDeclaration(ctx context.Context, queries *db.Queries, d *Declaration) (*declarationPlan, error) {
	plan := &declarationPlan{done: Declared{Changed: []string{}, Enabled: []string{}, Disabled: []string{}, Refused: []string{}}}
	there, err := allSchedules(ctx, queries)
	if err != nil {
		return plan, err
	}
	newer := 0
	for _, row := range there {
		of, _ := d.versionOf(row.Source)
		by, _ := d.versionOf(strings.TrimPrefix(db.Text(row.PauseReason), disabledBy))
		newer = max(newer, of, by)
	}
	if newer > d.Version {
		plan.done.Newer = newer
		return plan, nil
	}
	for i := range d.Schedules {
		s := &d.Schedules[i]
		row, found := there[s.Name]
		plan.declare(d, s, row, found)
		delete(there, s.Name)
	}
	plan.disable(d, there)
	return plan, nil
}

// allSchedules are all schedules by their names: people have made each of them.
func allSchedules(ctx context.Context, queries *db.Queries) (map[string]db.ScheduleListRow, error) {
	all := make(map[string]db.ScheduleListRow)
	for after := ""; ; {
		rows, err := queries.ScheduleList(ctx, comparedArgsMax, after, comparedPage)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			all[row.Name] = row
			after = row.Name
		}
		if len(rows) < comparedPage {
			return all, nil
		}
	}
}

// declare plans to make one schedule what is declared.
func (p *declarationPlan) declare(d *Declaration, s *jobq.Schedule, row db.ScheduleListRow, found bool) {
	if _, own := d.versionOf(row.Source); found && !own {
		p.done.Refused = append(p.done.Refused, s.Name)
		return
	}
	if !found || !isSchedule(&row, s) {
		p.steps = append(p.steps, declarationWrite{
			setting(s.Name), s.Name, true, &p.done.Changed,
			func(ctx context.Context, queries *db.Queries, actor string) (int64, error) {
				return queries.ScheduleSet(ctx, setParams(s, actor))
			},
		})
	}
	if strings.HasPrefix(db.Text(row.PauseReason), disabledBy) {
		p.steps = append(p.steps, declarationWrite{
			fmt.Sprintf("resume schedule %q", s.Name), s.Name, true, &p.done.Enabled,
			func(ctx context.Context, queries *db.Queries, actor string) (int64, error) {
				return queries.ScheduleResume(ctx, s.Name, actor)
			},
		})
	}
}

// disable plans to pause those of the application that are left: it declares them no more.
func (p *declarationPlan) disable(d *Declaration, left map[string]db.ScheduleListRow) {
	for _, name := range slices.Sorted(maps.Keys(left)) {
		row := left[name]
		if _, own := d.versionOf(row.Source); !own || row.PausedAt != nil {
			continue
		}
		p.steps = append(p.steps, declarationWrite{
			fmt.Sprintf("pause schedule %q", name), name, false, &p.done.Disabled,
			func(ctx context.Context, queries *db.Queries, actor string) (int64, error) {
				return queries.SchedulePause(ctx, name, db.TextOrNull(disabledBy+d.source()), actor)
			},
		})
	}
}

// isSchedule says whether a row is that schedule already. Where it cannot tell, such as
// with long args, it says no: the database then compares, and writes nothing either.
func isSchedule(row *db.ScheduleListRow, s *jobq.Schedule) bool {
	zone := ""
	if s.Cron != "" {
		zone = cmp.Or(s.TimeZone, time.UTC.String())
	}
	args := s.Args
	if args == nil {
		args = json.RawMessage("{}")
	}
	return row.Cron == s.Cron && time.Duration(row.EverySeconds)*time.Second == s.Every && row.TimeZone == zone &&
		row.Kind == s.Kind && sameJSON(row.Args, args) && row.Queue == s.Queue &&
		row.Priority == (pgtype.Int2{Int16: s.Priority, Valid: s.Priority != 0}) && int(row.MaxAttempts) == s.MaxAttempts &&
		db.Milliseconds(row.TimeoutMs) == s.Timeout && db.Milliseconds(row.BackoffBaseMs) == s.BackoffBase && db.Milliseconds(row.BackoffMaxMs) == s.BackoffMax &&
		slices.Equal(row.Tags, s.Tags) && sameJSON(row.Metadata, s.Metadata) && row.PartitionKey == s.PartitionKey &&
		row.CatchUp == string(cmp.Or(s.CatchUp, jobq.CatchUpLatest)) && int(row.CatchUpMax) == cmp.Or(s.CatchUpMax, catchUpMaxDefault) &&
		time.Duration(row.CatchUpWithinSeconds)*time.Second == cmp.Or(s.CatchUpWithin, catchUpWithinDefault) &&
		row.Overlap == string(cmp.Or(s.Overlap, jobq.OverlapAllow)) && row.Source == s.Source
}

// The defaults of jobq.schedule_set.
const (
	catchUpMaxDefault    = 100
	catchUpWithinDefault = 24 * time.Hour
)

// sameJSON says whether two texts, or two nils, are the same value. Numbers that are
// written in other ways differ here.
func sameJSON(a, b json.RawMessage) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	valueOf := func(text json.RawMessage) (value any, err error) {
		decoder := json.NewDecoder(strings.NewReader(string(text)))
		decoder.UseNumber()
		return value, decoder.Decode(&value)
	}
	one, err := valueOf(a)
	other, otherErr := valueOf(b)
	return err == nil && otherErr == nil && reflect.DeepEqual(one, other)
}
