package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// The statements that meet weights of keys cost the same however many keys have one, and however many keys wait, as in
// TestPlansOfMuchHistory; with a limit of the keys, and without one. They have a database of their own, since rows that a plan test takes
// back stay in the way of those after it.
func TestPlansBesideManyWeights(t *testing.T) {
	t.Parallel()
	for _, limit := range []bool{false, true} {
		t.Run(fmt.Sprintf("limit %t", limit), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.withoutAutovacuum()
			if limit {
				q.exec("insert into jobq.queue (name, key_limit) values ('keys', 5)")
			}
			q.exec("insert into jobq.pending (id, kind, queue, partition_key) select i, 'k', 'keys', 'key ' || i from generate_series(1, 100000) i")
			q.exec("truncate jobq.lane_hint")
			q.exec("insert into jobq.lane (queue, key) values ('keys', '')")
			q.exec("insert into jobq.lane (queue, key, turn) select 'keys', 'key ' || i, nextval('jobq.lane_turn_seq') from generate_series(1, 100000) i")
			q.exec("insert into jobq.key_weight (queue, key, weight) select 'keys', 'key ' || i, 2 + i % 9 from generate_series(1, 100000) i")
			const batch, inHand = 6_000, 3_000
			admitted := db.HotSettings + "; select set_config('jobq_claim.admitted', '100', true)"
			cases := []historyCase{
				{"LaneClaim", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 2 * batch, admitted},
				{"LaneClaim in a pass", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 500, 100000, false, 10", 2 * batch, admitted},
				{"LaneClaim of one job", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, false, 0, 0, false, 10", inHand, db.HotSettings + "; select set_config('jobq_claim.admitted', '1', true)"},
				{
					"LaneClaim beside hints", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 8 * batch,
					admitted + "; insert into jobq.lane_hint (queue, key) select 'keys', 'new ' || i from generate_series(1, 2000) i",
				},
				{"lane_weights", "select * from jobq.lane_weights($1, $2, $3, $4, $5)", "'keys', 0, 100000, '{}', 100", 1_000, db.HotSettings},
				{"lane_shares", "select * from jobq.lane_shares($1, $2, $3, $4)", "'keys', '{key 7,key 70000,none}', 1000, 'many'", 150, db.HotSettings},
				{"KeyList", db.KeyList, "10000, 'keys', 1000, '', 100", batch, ""},
				{"KeyWeightList", db.KeyWeightList, "'{key 7,key 70000}', 'keys'", 100, ""},
				{"KeyWeightAct", db.KeyWeightAct, "'ann', 'keys', 'key 7', 50", inHand, ""},
				{"KeyWeightAct that takes one away", db.KeyWeightAct, "'ann', 'keys', 'key 7', 1", inHand, ""},
				{"WhyList", db.WhyList, "70000", batch, ""},
			}
			conn, err := q.pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			q.runCases(conn, cases, func() { q.exec("analyze jobq.pending, jobq.lane, jobq.lane_hint, jobq.key_weight") })
		})
	}
}
