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
)

// JobKey is a place in a list: where the page before has ended.
type JobKey struct {
	Time time.Time // of SortFinished and SortDue
	ID   int64
}

// Condition is a SQL condition on the alias j of one stage's table, whose
// parameters are numbered from first.
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
	unsorted  bool // any jobs will do
}

// Stage is a table that jobs are in, and what its columns are called.
type Stage struct {
	Table                                       string
	Since, Worker, Args, Scheduled              string
	state, started, finished, progress, cleared string
	states                                      []string
}

// argsOf is the args of a job, which are kept apart when they are large.
const argsOf = "coalesce(j.args, (select a.args from jobq.payload a where a.job_id = j.id))"

func stages() []Stage {
	return []Stage{
		{
			Table: "jobq.pending", Since: "j.created_at", Worker: "null::text", Args: argsOf, Scheduled: "j.position is null",
			state:   "case when j.position is null then 'scheduled' else 'available' end",
			started: "null::timestamptz", finished: "null::timestamptz", states: []string{"scheduled", "available"}, cleared: "j.clear_reason",
			progress: "null::text, null::timestamptz, null::timestamptz, null::timestamptz, null::real, null::text, null::text",
		},
		{
			Table: "jobq.running", Since: "j.created_at", Worker: "j.lease_owner", Args: argsOf, Scheduled: "false",
			state: "'running'", started: "j.started_at", finished: "null::timestamptz", states: []string{"running"}, cleared: "j.clear_reason",
			progress: `j.lease_owner, j.lease_expires_at, j.cancel_requested_at, j.progressed_at, j.progress_percent,
        j.progress_stage, j.progress_message`,
		},
		{
			Table: "jobq.finished", Since: "j.finished_at", Worker: "j.lease_owner", Args: argsOf, Scheduled: "false",
			state: "j.state::text", started: "j.started_at", finished: "j.finished_at", states: []string{"completed", "failed", "cancelled"}, cleared: "null::text",
			progress: "j.lease_owner, null::timestamptz, null::timestamptz, null::timestamptz, null::real, null::text, null::text",
		},
	}
}

// JobList is a page of jobs, without args, checkpoint and result, which can be
// large. The SQL is put together here because a parameter would hide from the
// planner which tables and indexes it can do without: it names the tables of
// the states wanted only, and each gives no more rows than the page has.
// Needs pending_pkey, running_pkey and finished_id_idx, or pending_due_idx, or
// finished_unsuccessful_idx.
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
	page.unsorted = true
	sql, args := page.sql()
	if sql == "" {
		return 0, nil
	}
	err = sender{s, conn}.QueryRow(ctx, Render("select count(*) from ("+sql+") counted", s.name), args...).Scan(&count)
	return count, err
}

// SQL is the statement of the page, for a look at its plan.
func (p JobPage) SQL() (string, []any) { return p.sql() }

func (p JobPage) sql() (string, []any) {
	direction := " desc"
	if p.Ascending {
		direction = ""
	}
	key := map[JobSort]string{SortID: "", SortFinished: "finished_at", SortDue: "run_at"}[p.Sort]
	order := "id" + direction
	if key != "" {
		order = key + direction + ", " + order
	}
	args := []any{p.Size}
	var parts []string
	for _, stage := range stages() {
		wanted := slices.DeleteFunc(slices.Clone(stage.states), func(state string) bool { return !slices.Contains(p.States, state) })
		if len(wanted) == 0 {
			continue
		}
		conditions := p.conditions(stage, wanted, key, &args)
		sorted := "order by j." + strings.ReplaceAll(order, ", ", ", j.")
		if p.unsorted {
			sorted = ""
		}
		parts = append(parts, fmt.Sprintf(`
  (select j.id, %s as state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.crashes, j.lease_token, j.run_at,
        j.created_at, %s as started_at, %s as finished_at, %s,
        coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint, j.unique_key, j.last_error, %s, j.tags, j.metadata,
        null::jsonb, null::jsonb, null::jsonb
    from %s j
    where %s
    %s
    limit $1::integer)`, stage.state, stage.started, stage.finished, stage.progress, stage.cleared, stage.Table,
			strings.Join(conditions, "\n      and "), sorted))
	}
	if len(parts) == 0 {
		return "", nil
	}
	if p.unsorted {
		return "select from (" + strings.Join(parts, "\n  union all") + "\n) page limit $1::integer", args
	}
	return "select * from (" + strings.Join(parts, "\n  union all") + "\n) page order by " + order + " limit $1::integer", args
}

// conditions are those of one stage. States are constants in them: the
// planner must see that they are not 'completed' to use the partial index.
func (p JobPage) conditions(stage Stage, wanted []string, key string, args *[]any) []string {
	param := func(value any) string {
		*args = append(*args, value)
		return fmt.Sprintf("$%d", len(*args))
	}
	var conditions []string
	switch {
	case len(wanted) == len(stage.states):
	case stage.Table == "jobq.pending" && wanted[0] == "scheduled":
		conditions = append(conditions, "j.position is null")
	case stage.Table == "jobq.pending":
		conditions = append(conditions, "j.position is not null")
	default:
		conditions = append(conditions, "j.state in ('"+strings.Join(wanted, "', '")+"')")
	}
	if p.IDMax > 0 {
		conditions = append(conditions, "j.id <= "+param(p.IDMax)+"::bigint")
	}
	if p.After != nil {
		comparison := "<"
		if p.Ascending {
			comparison = ">"
		}
		if key == "" {
			conditions = append(conditions, fmt.Sprintf("j.id %s %s::bigint", comparison, param(p.After.ID)))
		} else {
			conditions = append(conditions, fmt.Sprintf("(j.%s, j.id) %s (%s::timestamptz, %s::bigint)",
				key, comparison, param(p.After.Time), param(p.After.ID)))
		}
	}
	if p.Condition != nil {
		sql, values := p.Condition(stage, len(*args)+1)
		*args = append(*args, values...)
		conditions = append(conditions, sql)
	}
	return append(conditions, "true")
}
