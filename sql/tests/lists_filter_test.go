package tests

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/filter"
)

// A unique key of unfinished jobs is looked up in the table of keys, and a member of args in the indexes that
// docs/filter.md has: neither reads the other jobs. Method: many jobs, and the buffers that the page of a filter looks at.
func TestFiltersUseIndexes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.exec(`insert into jobq.pending (kind, queue, unique_key, args)
		select 'k' || i % 7, 'q', 'key ' || i, jsonb_build_object('payment_id', i, 'big', case when i % 1000 = 0 then (select string_agg(md5(j::text), '') from generate_series(1, 100) j) end)
		from generate_series(1, 30000) i`)
	q.exec(`insert into jobq.run (id, lease_id, slot, state, finished_at, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue, kind, args, unique_key)
		select 100000 + i, jobq.lease_id_next(), 0, 'failed', now(), now(), now(), 0, 0, 1, 0, false, 'q', 'k', jsonb_build_object('payment_id', 100000 + i), 'ended ' || i
		from generate_series(1, 30000) i`)
	page, err := os.ReadFile("../../docs/filter.md")
	require.NoError(t, err)
	indexes := regexp.MustCompile(`(?m)^    (create index .*)$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, indexes, 5)
	for _, index := range indexes {
		q.exec(index[1])
	}
	q.exec("analyze")
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for text, jobs := range map[string]int{
		"state:waiting,scheduled,available,running key:\"key 7\"": 1, "state:available key:\"key 7\",\"key 8\",none": 2, "state:running key:none": 0, `key:"ended 77","key 78"`: 2,
		"args.payment_id=77": 1, "args.payment_id=5000": 1, "args.payment_id=100077,88 queue:q": 2, "args.payment_id=none": 0,
	} {
		query, err := filter.Parse(text)
		require.NoError(t, err)
		list := query.Page(time.Time{})
		list.Size = 51
		rows, err := q.schema.JobList(ctx, conn, list)
		require.NoError(t, err, text)
		require.Len(t, rows, jobs, text)
		for _, count := range []bool{false, true} {
			sql, args := list.SQL()
			if count {
				sql, args = list.CountSQL()
			}
			buffers := fewestBuffers(400, func() int { return explainBuffers(t, conn, sql, args...) })
			require.LessOrEqual(t, buffers, 400, "%s:\n%s", text, strings.ReplaceAll(q.plan(conn, sql, args...), "\n", "\n  "))
		}
	}
}
