package db

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// JobSort is an order that an index has, so that a page costs the same
// however deep it is.
type JobSort string

// The orders. Each is descending, and ascending when reversed.
const (
	SortID       JobSort = "id"
	SortFinished JobSort = "finished" // of what did not succeed
	SortDue      JobSort = "due"      // of what is scheduled
	SortStarted  JobSort = "started"  // of what runs, which is sorted in memory
)

// JobKey is a place in a list: where the page before has ended.
type JobKey struct {
	Time time.Time // of all but SortID
	ID   int64
}

// Condition is a SQL condition on a job of one stage, whose parameters are
// numbered from first. See Stage for the names it may use.
type Condition func(stage Stage, first int) (sql string, args []any)

// JobPage says which part of which list of jobs is wanted.
type JobPage struct {
	States    []string // in the order of a job's life
	Condition Condition
	Sort      JobSort
	Ascending bool
	After     *JobKey // nil to begin
	IDMax     int64   // 0 for no limit
	Size      int
	Values    bool // with args, checkpoint and result, which can be large
	// EndedWithin and EndedBefore are how long ago a job that is over has ended
	// at most, and at least, as far as that follows from the condition; 0 for no
	// limit. They leave days out.
	EndedWithin, EndedBefore time.Duration
	Now                      time.Time          // from which these count; zero for the moment of the statement
	unsorted                 bool               // any jobs will do
	column                   func(Stage) string // nil for none: what is chosen of those that are unsorted
}

// JobList is a page of jobs, without args, checkpoint and result unless it says so.
// The SQL is put together here because a parameter would hide from the
// planner which tables and indexes it can do without: it names the tables of
// the states wanted only, and each gives no more rows than the page has.
// Needs pending_pkey and run_id_idx, or pending_due_idx, or run_unsuccessful_idx.
func (s *Schema) JobList(ctx context.Context, conn DBTX, page JobPage) ([]JobGetRow, error) {
	sql, args := page.sql()
	if sql == "" {
		return nil, nil
	}
	// Rendered each time: there is no end to the filters that people write.
	rows, err := sender{s, conn}.Query(ctx, Render(sql, s.name), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[JobGetRow])
}

// JobCount counts the jobs of a list, up to the page's size.
func (s *Schema) JobCount(ctx context.Context, conn DBTX, page JobPage) (count int64, err error) {
	sql, args := page.CountSQL()
	if sql == "" {
		return 0, nil
	}
	err = sender{s, conn}.QueryRow(ctx, Render(sql, s.name), args...).Scan(&count)
	return count, err
}

// SQL is the statement of the page, for a look at its plan.
func (p JobPage) SQL() (string, []any) { return p.sql() }

// CountSQL is the statement that counts the jobs of the list.
func (p JobPage) CountSQL() (string, []any) {
	p.unsorted = true
	sql, args := p.sql()
	if sql == "" {
		return "", nil
	}
	return "select count(*) from (" + sql + ") counted", args
}

func (p JobPage) sql() (string, []any) {
	key := map[JobSort]string{SortID: "", SortFinished: "finished_at", SortDue: "run_at", SortStarted: "started_at"}[p.Sort]
	q := pageQuery{page: p, key: key, args: []any{p.Size}}
	var parts []string
	for _, stage := range p.stages() {
		parts = append(parts, q.part(stage))
	}
	if len(parts) == 0 {
		return "", nil
	}
	union := "from (" + strings.Join(parts, "\n  union all") + "\n) page"
	if p.unsorted {
		return q.open() + "select " + union + " limit $1::integer", q.args
	}
	return q.open() + "select * " + union + " order by " + q.order(q.key, "id") + " limit $1::integer", q.args
}

// pageQuery is the statement of a page in the making.
type pageQuery struct {
	page      JobPage
	key       string // what the page is sorted by before the id, if anything
	args      []any
	needsOpen bool
}

// param adds a parameter and returns its placeholder.
func (q *pageQuery) param(value any) string {
	q.args = append(q.args, value)
	return fmt.Sprintf("$%d", len(q.args))
}

// open is what the parts share: openJobs, when one of them wants it.
func (q *pageQuery) open() string {
	if q.needsOpen {
		return openJobs
	}
	return ""
}

// direction is that of the order.
func (q *pageQuery) direction() string {
	if q.page.Ascending {
		return ""
	}
	return " desc"
}

// order is what jobs are sorted by, with the names that the key and the id have
// there.
func (q *pageQuery) order(key, id string) string {
	if q.key == "" {
		return id + q.direction()
	}
	return key + q.direction() + ", " + id + q.direction()
}

// keyIn is what the key is called in a stage.
func (q *pageQuery) keyIn(stage Stage) string {
	switch q.page.Sort {
	case SortStarted:
		return stage.startedKey
	case SortDue:
		return stage.due
	default:
		return "j." + q.key
	}
}

// part is the page of one stage. Of what is over, the page comes first and then
// the leases of its jobs, unless the condition asks for them.
func (q *pageQuery) part(stage Stage) string {
	q.needsOpen = q.needsOpen || stage.needsOpen
	where := strings.Join(q.conditions(stage), "\n      and ")
	from := strings.ReplaceAll(stage.from, "{order}", q.order("o.started", "o.job_id"))
	column := ""
	if q.page.column != nil {
		column = " " + q.page.column(stage)
	}
	asked := strings.Contains(where+column, "lease.")
	if asked {
		from += stage.lease
	}
	if q.page.unsorted {
		if stage.counted != "" && !strings.Contains(where+column, "j.") {
			from = stage.counted
		}
		return fmt.Sprintf("\n  (select%s\n    from %s\n    where %s\n    limit $1::integer)", column, from, where)
	}
	sorted := fmt.Sprintf("where %s\n    order by %s\n    limit $1::integer", where, q.order(q.keyIn(stage), stage.ID))
	if stage.lease != "" && !asked {
		from, sorted = "(select j.* from "+from+"\n    "+sorted+") j"+stage.lease, ""
	}
	return fmt.Sprintf("\n  (select %s\n    from %s%s\n    %s)", stage.columns(q.page.Values), from, stage.beside, sorted)
}

// conditions are those of one stage.
func (q *pageQuery) conditions(stage Stage) []string {
	p := q.page
	conditions := slices.Clone(stage.conditions)
	ago := func(condition string, age time.Duration) {
		if age > 0 && condition != "" {
			now := "now()"
			if !p.Now.IsZero() {
				now = q.param(p.Now) + "::timestamptz"
			}
			moment := "(" + now + " - " + q.param(age.Microseconds()) + "::bigint * interval '1 us')"
			conditions = append(conditions, strings.ReplaceAll(condition, "{moment}", moment))
		}
	}
	ago(stage.since, p.EndedWithin)
	ago(stage.before, p.EndedBefore)
	if p.IDMax > 0 {
		conditions = append(conditions, stage.ID+" <= "+q.param(p.IDMax)+"::bigint")
	}
	if p.After != nil {
		comparison := "<"
		if p.Ascending {
			comparison = ">"
		}
		if q.key == "" {
			conditions = append(conditions, fmt.Sprintf("%s %s %s::bigint", stage.ID, comparison, q.param(p.After.ID)))
		} else {
			conditions = append(conditions, fmt.Sprintf("(%s, %s) %s (%s::timestamptz, %s::bigint)",
				q.keyIn(stage), stage.ID, comparison, q.param(p.After.Time), q.param(p.After.ID)))
		}
	}
	if p.Condition != nil {
		sql, values := p.Condition(stage, len(q.args)+1)
		q.args = append(q.args, values...)
		conditions = append(conditions, sql)
	}
	return append(conditions, "true")
}
