package db

import (
	"context"
	"encoding/json"
	"fmt"
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
