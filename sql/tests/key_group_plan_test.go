package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

// The statements that meet groups of keys cost the same however many keys and groups there are, as in TestPlansOfMuchHistory: with
// 50,000 keys in one group, and 50,000 groups of a key each. They have a database of their own, as TestPlansBesideManyWeights says.
func TestPlansOfManyGroups(t *testing.T) {
	t.Parallel()
	for _, limit := range []bool{false, true} {
		t.Run(fmt.Sprintf("limit %t", limit), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			q := setUp(t)
			q.withoutAutovacuum()
			q.exec("insert into jobq.queue (name, key_separator, key_limit) values ('keys', '/', $1)", map[bool]any{true: 5}[limit])
			const name = "case when i % 2 = 0 then 'many' else 'tenant ' || i end || '/' || i"
			q.exec("insert into jobq.pending (id, kind, queue, partition_key) select i, 'k', 'keys', " + name + " from generate_series(1, 100000) i")
			q.exec("truncate jobq.lane_hint")
			q.exec("insert into jobq.lane (queue, key, group_clock) values ('keys', '', 0)")
			q.exec("insert into jobq.lane (queue, key, turn) select 'keys', " + name +
				", jobq.group_turn_first() + (case when i % 2 = 0 then i / 2 else i % 10 end::bigint << 20) + i from generate_series(1, 100000) i")
			q.exec("insert into jobq.key_group (queue, name, next_turn) values ('keys', 'many', 50001)")
			q.exec("insert into jobq.key_group (queue, name, next_turn) select 'keys', 'tenant ' || i, i % 10 + 1 from generate_series(1, 99999, 2) i")
			const batch, inHand = 6_000, 3_000
			admitted := db.HotSettings + "; select set_config('jobq_claim.admitted', '100', true)"
			ready := "; insert into jobq.lane (queue, key, turn) select 'keys', 'many/new ' || i, i from generate_series(1, 3000) i"
			hints := "; insert into jobq.lane_hint (queue, key) select 'keys', 'many/hinted ' || i from generate_series(1, 2000) i"
			weights := "; insert into jobq.key_weight (queue, key, weight) select 'keys', 'tenant ' || i || '/' || i, 3 from generate_series(1, 2000) i"
			cases := []historyCase{
				{"LaneClaim", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 2 * batch, admitted},
				{"LaneClaim with weights", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 3 * batch, admitted + weights},
				{
					"LaneClaim in a pass", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 4503599627370496 + 1048576, 4503599627370496 + 10485760, false, 10",
					2 * batch, admitted,
				},
				{"LaneClaim of one job", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, false, 0, 0, false, 10", inHand, db.HotSettings + "; select set_config('jobq_claim.admitted', '1', true)"},
				{"LaneClaim beside hints", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 12 * batch, admitted + hints},
				{
					"LaneClaim without groups now", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", 12 * batch,
					admitted + "; update jobq.queue set key_separator = null where name = 'keys'",
				},
				{"lane_group", "select jobq.lane_group($1, $2, $3, $4)", "'keys', '/', true, 1000", 8 * batch, db.HotSettings + ready + weights},
				{"lane_ungroup", "select jobq.lane_ungroup($1, $2)", "'keys', 1000", 6 * batch, db.HotSettings},
				{"lane_group_shares", "select * from jobq.lane_group_shares($1, $2, $3, $4, $5, $6, $7, $8, $9)", "'keys', '/', true, '{many/2,many/4}', 4503600000000000, 9000000000000000, 100, 1000, true", inHand, db.HotSettings},
				{
					"lane_group_charge", "select jobq.lane_group_charge($1, $2, $3, $4, $5, $6, $7, $8)",
					"'keys', '/', true, 2000, '{many/2,tenant 7/7,none/1}', '{1,2,3}', '{1,1,1}', '{9,1,0}'", inHand, db.HotSettings,
				},
				{"LanePrune", db.LanePrune, "'', '', 0, 100", 2 * inHand, ""},
				{"WhyList", db.WhyList, "70000", batch, ""},
			}
			conn, err := q.pool.Acquire(ctx)
			require.NoError(t, err)
			defer conn.Release()
			q.runCases(conn, cases, func() { q.exec("analyze jobq.pending, jobq.lane, jobq.lane_hint, jobq.key_group, jobq.key_weight") })
		})
	}
}
