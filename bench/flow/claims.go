package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jobq-dev/jobq/internal/db"
)

// claims is how long a claim of 20 jobs takes beside so many keys that are full, of which jobs wait: the median of a hundred.
func (b *bed) claims(ctx context.Context, full int) (time.Duration, error) {
	for _, sql := range []string{
		"truncate jobq.pending, jobq.lane, jobq.lane_hint, jobq.queue, jobq.lease, jobq.run",
		`select jobq.act_queue_set('bench', 'default', '{"key_limit": 1}')`,
		fmt.Sprintf("insert into jobq.pending (kind, partition_key) select 'bench', 'full ' || i %% %d from generate_series(1, %d) i", full, 2*full),
	} {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return 0, err
		}
	}
	for taken := 0; taken < full; {
		jobs, _, err := b.claim(ctx, 100, true)
		if err != nil {
			return 0, err
		}
		taken += jobs
	}
	if _, err := b.pool.Exec(ctx, "insert into jobq.pending (kind, partition_key) select 'bench', 'ready ' || i from generate_series(1, 20) i"); err != nil {
		return 0, err
	}
	if _, _, err := b.claim(ctx, 0, true); err != nil { // takes the hints away
		return 0, err
	}
	for _, table := range []string{"pending", "lane", "lane_hint"} {
		if _, err := b.pool.Exec(ctx, "vacuum (analyze) jobq."+table); err != nil {
			return 0, err
		}
	}
	var times []time.Duration
	for range 100 {
		jobs, took, err := b.claim(ctx, 20, false)
		if err != nil {
			return 0, err
		}
		if jobs != 20 {
			return 0, fmt.Errorf("a claim took %d jobs", jobs)
		}
		times = append(times, took)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// claim claims up to so many jobs with keys, as a worker does, and says how many and in what time.
func (b *bed) claim(ctx context.Context, count int, commit bool) (jobs int, took time.Duration, err error) {
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, db.HotSettings); err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if _, err := tx.Exec(ctx, "select jobq.queue_admit('default', $1, $1, true)", count); err != nil {
		return 0, 0, err
	}
	if err := tx.QueryRow(ctx, "select count(*) from jobq.lane_claim('default', '{bench}', 'w', '1 day', false, false, 0, 0, false)").Scan(&jobs); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	if commit {
		err = tx.Commit(ctx)
	}
	return jobs, took, err
}
