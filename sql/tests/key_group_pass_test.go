package tests

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// A claim that got what it wanted has passed lanes by: the next one of the pass begins with these, and not behind the last lane that had nothing.
func TestPassGoesOnWithLanesPassedBy(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue(case when i <= 20 then 'other' else 'k' end, partition_key => 'late/' || i) from generate_series(1, 30) i")
	q.enqueueGroup("many", 60, 1)
	q.takeHints()
	answer := q.exchange(keyed("w", 10))
	require.Len(t, answer.Keyed, 10)
	require.Positive(t, answer.LanePass.FromTurn)
	rows, err := q.pool.Query(ctx, "select key from jobq.lane where key like 'many/%' and turn >= jobq.group_turn_first() order by turn limit 5")
	require.NoError(t, err)
	next, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	answer = q.exchange(pass(keyed("w", 10), answer))
	require.Subset(t, slices.Collect(maps.Keys(perKey(answer.Keyed))), next)
}

// Lanes of the same turn are looked at together: a pass goes on behind a turn, and would pass by the second one.
func TestLanesOfTheSameTurn(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue('other', partition_key => 'other/' || i) from generate_series(1, 100) i")
	q.takeHints()
	q.enqueueKeyed("mine/1", 1)
	q.takeHints()
	q.exec("update jobq.lane set turn = (select max(turn) from jobq.lane where key like 'other/%') where key = 'mine/1'")
	require.Len(t, q.exchange(keyed("w", 1)).Keyed, 1)
}

// Lanes that get their turns while a worker's pass is under way may be behind it: it takes of them all the same.
func TestGroupsBehindAPass(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue('other', partition_key => 'many/' || i) from generate_series(1, 150) i")
	exchange := keyed("w", 10)
	answer := q.exchange(exchange)
	require.Positive(t, answer.LanePass.FromTurn)
	q.enqueueKeyed("one/1", 1)
	q.takeHints()
	q.exec("update jobq.lane set turn = nextval('jobq.lane_turn_seq') where key = 'one/1'") // as if another worker's claim had served it
	require.Len(t, q.exchange(pass(exchange, answer)).Keyed, 1)
}

// Jobs that only others can run, at the head of many keys of a group, hide nothing: a worker finds each of its own, and keeps nobody from theirs.
func TestGroupsWithJobsOfOtherKinds(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]string{"no limit": `{}`, "limit": `{"key_limit": 50}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := setUp(t)
			q.set(`{"key_separator": "/"}`)
			q.set(settings)
			q.exec("select jobq.enqueue(case when i % 50 = 0 then 'mine' else 'other' end, partition_key => 'many/' || i) from generate_series(1, 700) i")
			q.exec("select jobq.enqueue(case when i % 3 = 0 then 'mine' else 'other' end, partition_key => 'some/' || i) from generate_series(1, 60) i")
			q.exec("select jobq.enqueue('mine', partition_key => 'one') from generate_series(1, 30) i")
			for _, worker := range []struct {
				kind string
				jobs int
			}{{"mine", 700/50 + 60/3 + 30}, {"none", 0}, {"other", 700 - 700/50 + 40}} {
				exchange := keyed("w", 4)
				exchange.Claim.Kinds = []string{worker.kind}
				taken, claims := q.passOf(exchange)
				jobs := 0
				for _, count := range taken {
					jobs += count
				}
				require.Equal(t, worker.jobs, jobs, worker.kind)
				require.Less(t, claims, 20+5*jobs)
			}
			require.Zero(t, q.number("select count(*) from jobq.pending"))
		})
	}
}

// Lanes that have nothing for a worker keep no other group from its share, while the worker looks for what there is behind them.
func TestSharesBesideJobsOfOtherKinds(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.set(`{"key_separator": "/"}`)
	q.exec("select jobq.enqueue('other', partition_key => 'x/' || i) from generate_series(1, 350) i")
	q.enqueueGroup("x", 350, 3) // behind these
	q.enqueueGroup("y", 3, 300)
	q.enqueueKeyed("z/1", 900)
	q.exec("update jobq.pending set priority = 5 where kind = 'other' and substr(partition_key, 3)::integer % 30 <> 0")
	q.exec("delete from jobq.pending where kind = 'k' and partition_key like 'x/%' and substr(partition_key, 3)::integer % 30 <> 0")
	q.takeHints()
	counts := make(map[string]int)
	var answer db.Exchanged
	for counts["x"] < 20 {
		answer = q.exchange(pass(keyed("w", 9), answer))
		started(counts, answer)
		require.True(t, answer.KeysMore)
	}
	turnsAreClose(t, counts, map[string]int{"y": 1, "z": 1}, 4)
	require.Greater(t, counts["y"], counts["x"]-8)
	require.Greater(t, 4*counts["x"], counts["y"], "it looks for those of x in passes")
}
