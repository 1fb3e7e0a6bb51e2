package db

import (
	"context"
	"math"
	"strings"
	"time"
)

// StateCount is how many jobs of a list are in a state.
type StateCount struct {
	State string
	Count int64
}

// JobStates counts all jobs of a list by state. It reads each of them.
func (s *Schema) JobStates(ctx context.Context, conn DBTX, page JobPage) ([]StateCount, error) {
	sql, args := page.summarySQL(func(stage Stage) string { return stage.state + " as state" })
	if sql == "" {
		return nil, nil
	}
	rows, err := sender{s, conn}.Query(ctx, Render("select page.state, count(*) "+sql+" group by page.state", s.name), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var counts []StateCount
	for rows.Next() {
		var count StateCount
		if err := rows.Scan(&count.State, &count.Count); err != nil {
			return nil, err
		}
		counts = append(counts, count)
	}
	return counts, rows.Err()
}

// JobEnds counts the jobs of a list that are over, and says how long ago the first of them ended.
func (s *Schema) JobEnds(ctx context.Context, conn DBTX, page JobPage) (count int64, span time.Duration, err error) {
	sql, args := page.summarySQL(func(stage Stage) string { return stage.Finished + " as ended_at" })
	if sql == "" {
		return 0, 0, nil
	}
	var seconds float64
	err = sender{s, conn}.QueryRow(ctx, Render(
		"select count(page.ended_at), coalesce(extract(epoch from clock_timestamp() - min(page.ended_at)), 0)::float8 "+sql, s.name), args...).Scan(&count, &seconds)
	return count, Seconds(seconds), err
}

// JobUsage is what the recorded runs of jobs have used.
type JobUsage struct {
	Runs        int64
	CPUSeconds  float64
	MaxRSSBytes int64
}

// JobUsage sums up what the programs of all jobs of a list have used, in all their recorded runs. Needs attempt_job_id_idx:
// the offset has the runs of each job looked up, and not all runs read.
func (s *Schema) JobUsage(ctx context.Context, conn DBTX, page JobPage) (usage JobUsage, err error) {
	sql, args := page.summarySQL(func(stage Stage) string { return stage.ID + " as id" })
	if sql == "" {
		return usage, nil
	}
	err = sender{s, conn}.QueryRow(ctx, Render(`select count(*), coalesce(sum(r.cpu), 0)::float8, coalesce(max(r.memory), 0)::bigint
  `+sql+`
  cross join lateral (
    select case when jsonb_typeof(a.usage -> 'cpu_seconds') = 'number' then (a.usage -> 'cpu_seconds')::float8 end as cpu,
        case when jsonb_typeof(a.usage -> 'max_rss_bytes') = 'number' then (a.usage -> 'max_rss_bytes')::numeric end as memory
      from jobq.attempt a
      where a.job_id = page.id and a.usage is not null
      offset 0
  ) r`, s.name), args...).Scan(&usage.Runs, &usage.CPUSeconds, &usage.MaxRSSBytes)
	return usage, err
}

// summarySQL is the from of all jobs of the list, of which column is one that is chosen; "" for a list of none.
func (p JobPage) summarySQL(column func(Stage) string) (string, []any) {
	p.unsorted, p.column, p.Size = true, column, math.MaxInt32
	q := pageQuery{page: p, args: []any{p.Size}}
	var parts []string
	for _, stage := range p.stages() {
		parts = append(parts, q.part(stage))
	}
	if len(parts) == 0 {
		return "", nil
	}
	from := "from (" + strings.Join(parts, "\n  union all") + "\n) page"
	if q.needsOpen { // in place of a with before the select, which is the caller's
		from = "from (" + openJobs + "select * from (" + strings.Join(parts, "\n  union all") + "\n) parts) page"
	}
	return from, q.args
}
