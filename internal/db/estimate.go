package db

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// availableEstimated is about how many jobs of a queue are available. Its plan says it: nothing is read.
const availableEstimated = "(select from jobq.pending p where p.queue = $%d and p.position is not null)"

// AvailableEstimate returns for each queue about how many jobs of it are available, as the planner
// expects. One plan has all queues, so that it takes one round trip. It returns nil where
// the table was never analyzed, since the planner only guesses then. In a transaction with
// max_parallel_workers_per_gather = 0: a parallel plan has the queues in another order.
func (s *Schema) AvailableEstimate(ctx context.Context, conn DBTX, queues []string) ([]int64, error) {
	if len(queues) == 0 {
		return nil, nil
	}
	var analyzed bool
	err := sender{s, conn}.QueryRow(ctx, Render("select c.reltuples > 0 from pg_catalog.pg_class c where c.oid = 'jobq.pending'::regclass", s.name)).Scan(&analyzed)
	if err != nil || !analyzed {
		return nil, err
	}
	parts, args := make([]string, len(queues)), make([]any, len(queues))
	for i, queue := range queues {
		parts[i], args[i] = fmt.Sprintf(availableEstimated, i+1), queue
	}
	var explained []byte
	err = sender{s, conn}.QueryRow(ctx, Render("explain (format json) "+strings.Join(parts, " union all "), s.name), args...).Scan(&explained)
	if err != nil {
		return nil, err
	}
	return rowsOfPlans(explained, len(queues))
}

// rowsOfPlans are the rows that the planner expects of each part of a union.
func rowsOfPlans(explained []byte, parts int) ([]int64, error) {
	type plan struct {
		Rows  float64 `json:"Plan Rows"`
		Plans []plan
	}
	var root []struct{ Plan plan }
	if err := json.Unmarshal(explained, &root); err != nil {
		return nil, fmt.Errorf("plan of an estimate: %w", err)
	}
	if len(root) != 1 {
		return nil, fmt.Errorf("plan of an estimate: %d plans", len(root))
	}
	plans := root[0].Plan.Plans
	if parts == 1 {
		plans = []plan{root[0].Plan}
	}
	if len(plans) != parts {
		return nil, fmt.Errorf("plan of an estimate: %d parts, not %d", len(plans), parts)
	}
	rows := make([]int64, parts)
	for i, part := range plans {
		rows[i] = int64(part.Rows)
	}
	return rows, nil
}

// JobEstimate is about how many jobs there are in these states for which the condition holds, as the planner expects:
// nothing is read. It is 0 where a table was never analyzed, since the planner only guesses then. Jobs that run count
// as completed, too: they are few.
func (s *Schema) JobEstimate(ctx context.Context, conn DBTX, page JobPage) (int64, error) {
	var analyzed bool
	err := sender{s, conn}.QueryRow(ctx, Render(`select not exists (
		select from pg_catalog.pg_class c where c.oid = 'jobq.pending'::regclass and c.reltuples < 0)
		and exists (select from pg_catalog.pg_class c where c.reltuples > 0
			and (c.oid = 'jobq.pending'::regclass or c.oid in (select i.inhrelid from pg_catalog.pg_inherits i where i.inhparent = 'jobq.run'::regclass)))`, s.name)).Scan(&analyzed)
	if err != nil || !analyzed {
		return 0, err
	}
	q := pageQuery{page: page}
	var parts []string
	part := func(from string, stage Stage) {
		parts = append(parts, "(select from "+from+" where "+strings.Join(q.conditions(stage), " and ")+")")
	}
	for _, stage := range page.stages() {
		if stage.from == pendingJobs {
			part(pendingJobs, stage)
		}
	}
	states := slices.DeleteFunc([]string{"completed", "failed", "cancelled"}, func(state string) bool { return !slices.Contains(page.States, state) })
	if len(states) > 0 {
		own := isOneOf(states)
		if states[0] == "completed" {
			own = "(j.state is null or " + own + ")"
		}
		part("jobq.run j", Stage{ID: "j.id", Queue: "j.queue", Scheduled: "false", Finished: "j.finished_at", conditions: []string{own}})
	}
	if len(parts) == 0 {
		return 0, nil
	}
	var explained []byte
	err = sender{s, conn}.QueryRow(ctx, Render("explain (format json) "+strings.Join(parts, " union all "), s.name), q.args...).Scan(&explained)
	if err != nil {
		return 0, err
	}
	rows, err := rowsOfPlans(explained, 1)
	if err != nil {
		return 0, err
	}
	return rows[0], nil
}
