package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
)

const (
	// scaleVariable names the environment variable for the size of TestPlansOfMuchHistory.
	scaleVariable = "JOBQ_PLAN_SCALE"
	// scaleDefault is enough for every plan that reads a whole table to be far
	// beyond its bound: a tenth of what scale 1 has.
	scaleDefault = 0.1
)

// fillHistory fills all tables. Of what grows with the age of an installation
// and with its backlog, at scale 1, there are 2 million scheduled jobs, 1 million
// available ones in a hundred queues, 3 million finished ones in nine days, 2 million
// rows of stat (30 days, 50 queue and kind pairs), 300,000 large args to be
// pruned, 600,000 attempts, 300,000 events and pieces of output and 2 million jobs
// in the audit. Of what is as small as the work in hand (leases, workers, stats
// not yet rolled up), and of what is there to be pruned and promoted, there is as
// much at each scale.
func (q *queue) fillHistory(scale float64) {
	q.Helper()
	ctx := context.Background()
	conn, err := q.pool.Acquire(ctx)
	require.NoError(q, err)
	defer conn.Release()
	rows := func(full float64) int { return int(full * scale) }
	for _, statement := range []struct {
		sql  string
		args []any
	}{
		{"set synchronous_commit = off", nil},
		{"set session_replication_role = replica", nil}, // no triggers, no foreign keys
		{`select jobq.partition_add(parent, (now() at time zone 'UTC')::date - ago)
			from unnest(array['finished', 'attempt']) as parent, generate_series(1, 9) as ago`, nil},
		{`insert into jobq.pending (id, position, run_at, kind, queue, attempts)
			select 10000000 + i, null, now() + i * interval '1 s' + interval '1 hour', 'k' || i % 5, 'q' || i % 10, i % 3 from generate_series(1, $1::integer) i`, []any{rows(2e6)}},
		{`insert into jobq.pending (id, position, kind, queue)
			select i, i, 'k' || i % 5, 'q' || i % 100 from generate_series(1, $1::integer) i`, []any{rows(1e6)}},
		{`insert into jobq.pending (id, position, run_at, kind, queue)
			select 15000000 + i, null, now() - i * interval '1 ms', 'k', 'due' from generate_series(1, 20) i`, nil},
		{`insert into jobq.finished (id, finished_at, lease_token, started_at, run_at, created_at, state, priority, attempts, max_attempts, crashes,
			  args_apart, queue, kind, lease_owner, args, last_error)
			select 20000000 + i, now() - interval '7 days' + i * (interval '7 days' / $1::integer), 1, now(), now(), now(),
			  (case i % 100 when 0 then 'failed' when 1 then 'cancelled' else 'completed' end)::jobq.job_state, 0, 0, 25, 0,
			  false, 'q' || i % 10, 'k' || i % 5, 'w', '{}', case when i % 100 = 0 then 'error ' || i % 7 end
			from generate_series(1, $1::integer) i`, []any{rows(27e5)}},
		{`insert into jobq.finished (id, finished_at, lease_token, run_at, created_at, state, priority, attempts, max_attempts, crashes,
			  args_apart, queue, kind, lease_owner)
			select 30000000 + i, date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' - interval '9 days' + i * interval '10 ms', 1, now(), now(),
			  'completed', 0, 0, 25, 0, true, 'q' || i % 10, 'k' || i % 5, 'w'
			from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{"insert into jobq.payload (job_id, args) select 30000000 + i, '{}' from generate_series(1, $1::integer) i", []any{rows(3e5)}},
		{`insert into jobq.attempt (job_id, finished_at, started_at, lease_token, outcome, number, worker_id, error)
			select 20000000 + 4 * i, now() - interval '7 days' + i * (interval '7 days' / $1::integer), now(), 1, 'failed', 1, 'w', 'e'
			from generate_series(1, $1::integer) i`, []any{rows(6e5)}},
		{`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()) - m * interval '1 minute', 'q' || k % 10, 'k' || k / 10, 1, 0, 0, 0, 0, 1, 1
			from generate_series($1::integer, 0, -1) m, generate_series(0, 49) k`, []any{rows(43_000)}},
		{`insert into jobq.stat (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()) - interval '31 days' - m * interval '1 minute', 'q' || k % 10, 'k' || k / 10, 1, 0, 0, 0, 0, 1, 1
			from generate_series(20, 0, -1) m, generate_series(0, 49) k`, nil},
		{`insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
			select date_trunc('minute', now()), 'q' || i % 10, 'k' || i % 5, 1, 0, 0, 0, 0, 1, 1 from generate_series(1, 5000) i`, nil},
		{`insert into jobq.event (at, type, source) select now() - interval '8 days' + i * interval '1 ms', 'stalled', 's' from generate_series(1, 1000) i`, nil},
		{`insert into jobq.event (at, type, source)
			select now() - interval '6 days' + i * (interval '6 days' / $1::integer), 'stalled', 's' from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{`insert into jobq.audit (at, actor, action, done)
			select now() - case when i <= 20 then interval '91 days' else interval '80 days' end + i * interval '1 s', 'ann', 'cancel', 100
			from generate_series(1, $1::integer + 20) i`, []any{rows(20_000)}},
		{`insert into jobq.audit_job (audit_id, job_id, lease_token, state_before, state_after, before)
			select a, 20000000 + a * 100 + j, 1, 'failed', 'available', '{}' from generate_series(1, $1::integer + 20) a, generate_series(1, 100) j`, []any{rows(20_000)}},
		{`insert into jobq.running (id, lease_token, lease_expires_at, started_at, run_at, created_at, priority, attempts, max_attempts,
			  crashes, args_apart, queue, kind, lease_owner, args)
			select 40000000 + i, 1, now() + interval '1 hour', now(), now(), now(), 0, 0, 25, 0, false, 'q' || i % 10, 'k', 'w' || i % 200, '{}'
			from generate_series(1, 4000) i`, nil},
		{`insert into jobq.worker (id, pid, hostname, version, queues, kinds)
			select 'w' || i, i, 'h' || i % 50, 'v', '{"q1": 5, "q2": 5}', '{k1,k2}' from generate_series(1, 200) i`, nil},
		{`insert into jobq.output (job_id, lease_token, begins_at, ends_at, written_at, content)
			select 20000000 + i % 100, 1, i, i + 1, now() - interval '6 minutes', 'x' from generate_series(1, 1000) i`, nil},
		{`insert into jobq.output (job_id, lease_token, begins_at, ends_at, content)
			select 40000000 + i % 4000, 1, i, i + 1, 'x' from generate_series(1, $1::integer) i`, []any{rows(3e5)}},
		{"select setval('jobq.job_id_seq', $1::bigint), setval('jobq.position_seq', $1::bigint)", []any{firstBigID}},
		{"set session_replication_role = origin", nil},
	} {
		_, err := conn.Exec(ctx, statement.sql, statement.args...)
		require.NoError(q, err, statement.sql)
	}
}

// historyCase is a statement with arguments, and how many buffers it may look
// at, whatever there is in the tables.
type historyCase struct {
	name, sql, args string
	buffers         int
	before          string // a statement that makes it something to do
}

// historyCases are the statements of the janitor, the worker, the UI and the
// CLI. Their bounds are some times what they need, and small beside any table.
func historyCases() []historyCase {
	const few, batch, inHand = 300, 6_000, 3_000
	return []historyCase{
		// The janitor.
		{"JobPromote", db.JobPromote, "'-infinity', 0, 1000", inHand, ""},
		{"NextDue", db.NextDue, "10000, 10000, true, '-infinity'", few, ""},
		{"DueFirst", db.DueFirst, "", few, ""},
		{"LeaseReap", db.LeaseReap, "null, 100, 'janitor'", inHand, ""},
		{"StatRollUp", db.StatRollUp, "1000", batch, ""},
		{"StatPrune", db.StatPrune, "'-infinity', '30 days', 500", inHand, ""},
		{"EventPrune", db.EventPrune, "'-infinity', '7 days', 500", inHand, ""},
		{"AuditPrune", db.AuditPrune, "0, 0, 500", batch, ""},
		{"PartitionAdd", db.PartitionAdd, "'finished', 5", inHand, ""},
		{"PartitionPrune", db.PartitionPrune, "'finished'", batch, ""},
		{"PayloadPrune", db.PayloadPrune, "'', 0, 1000, 500", batch, "select jobq.partition_prune('finished')"},
		{"DefaultPrune", db.DefaultPrune, "'finished', '-infinity', 1000", inHand, ""},
		{"WorkerPrune", db.WorkerPrune, "'5 minutes'", few, ""},
		// The worker.
		{"JobEnqueue", db.JobEnqueue, "'k', '{}', 'q1', 0, null, '1 hour', 25, null, null, null, null, null", few, ""},
		{"JobFate", db.JobFate, "20000004, 1, 'w', now() - interval '8 days'", few, ""},
		{"AttemptKeepOutput", db.AttemptKeepOutput, "'w', '{20000004,20000008}', '{1,1}', '{a,b}', '{null,null}', '{0,9}'", few, ""},
		{"AttemptKeepUsage", db.AttemptKeepUsage, "'w', '{20000004,20000008}', '{1,1}', '{null,null}'", few, ""},
		{"OutputAppend", db.OutputAppend, "1000000000, 1000000001, 'x', 40000001, 1, 'w1', 1000", inHand, ""},
		{"OutputPrune", db.OutputPrune, "'-infinity', 500", batch, ""},
		{"DigestRead", db.DigestRead, "'{1,2,3}'", few, ""},
		{"WorkWaits", db.WorkWaits, "'{k1}', '{none,due}'", few, ""},
		{"WorkWaits of one", db.WorkWaits, "'{k}', '{none,due}'", few, ""},
		{"WorkerBeat", db.WorkerBeat, "'1 minute', '{k1}', 'w1', '{q1,q2}', 1, null, false, true, true, 'h', null, null, 'v', '{}', '{}'", few, ""},
		{"WorkerEarlier", db.WorkerEarlier, "'1 minute', 'w1', null", few, ""},
		{"LeaseOwners", db.LeaseOwners, "'w1'", few, ""},
		// The UI and the CLI.
		{"QueueList", db.QueueList, "1000", 4 * batch, ""},
		{"StatsByQueue", db.StatsByQueue, "'1 hour'", inHand, ""},
		{"StatsByMinute", db.StatsByMinute, "'1 hour'", inHand, ""},
		{"FailuresByError", db.FailuresByError, "100, '1 day', 500", inHand, ""},
		{"FailuresByError of all cancelled", db.FailuresByError, "100, '1 day', 500", inHand, "update jobq.finished set state = 'cancelled' where finished_at > now() - interval '1 day' and state <> 'completed'"},
		{"RunsSilent", db.RunsSilent, "20, '1 hour', '1 hour', '10 minutes', 3, 1000", inHand, ""},
		{"RunsSilent of all that run", db.RunsSilent, "20, '1 hour', '1 hour', '10 minutes', 3, 1000", 2 * batch, "update jobq.running set started_at = now() - interval '2 hours'"},
		{"SessionFacts", db.SessionFacts, "", few, ""},
		{"WorkerList", db.WorkerList, "", few, ""},
		{"EventList", db.EventList, "9223372036854775807, 20", few, ""},
		{"AuditList", db.AuditList, "9223372036854775807, 100", inHand, ""},
		{"AuditGet", db.AuditGet, "100", few, ""},
		{"AuditOfJob", db.AuditOfJob, "20010001", few, ""},
		{"JobGet", db.JobGet, "20000004", few, ""},
		{"JobFate", db.JobFate, "20000100, 1, 'w', now() - interval '1 day'", few, ""},
		{"AttemptList", db.AttemptList, "20000004", few, ""},
		{"OutputSince", db.OutputSince, "40000001, 1, 0", few, ""},
		{"JobCancel", db.JobCancel, "17", inHand, ""},
		{"JobRequeue", db.JobRequeue, "20000100", inHand, ""},
		{"JobDelete", db.JobDelete, "20000100", inHand, ""},
		{"JobAct", db.JobAct, "'ann', 'requeue', '{20000100,20000200}', '{}', '{}', null, 0, null", inHand, ""},
		{"JobClone", db.JobClone, "'ann', 20000100, '{}'", inHand, ""},
		{"AuditUndo", db.AuditUndo, "'ann', 200", 5 * batch, ""}, // of a hundred jobs,
		{"AuditBegin", db.AuditBegin, "'ann', 'cancel', 'id:>0', null, null, null, null", few, ""},
		{"QueueAct", db.QueueAct, "'ann', 'pause', 'q1', null", inHand, ""},
		{"QueueAct on an unknown queue", db.QueueAct, "'ann', 'pause', 'none', null", inHand, ""},
		{"QueueKnown of one in use", db.QueueKnown, "'q1'", few, ""},
		{"QueueKnown of one that ended long ago", db.QueueKnown, "'monthly'", inHand, "insert into jobq.stat select now() - interval '29 days', 1, 1, 1, 0, 0, 0, 0, 'monthly', 'k'"},
		{"QueueKnown of no queue", db.QueueKnown, "'none'", inHand, ""},
		{"WorkerDrain", db.WorkerDrain, "'ann', 'w1'", inHand, ""},
	}
}

// elsewhere are the queries that are not among the cases, and why.
var elsewhere = map[string]string{
	"TestPlansOfAMillion":      "JobClaim JobComplete JobEnd LeaseExtend",
	"running_pkey only":        "LeaseHeld LeaseHold JobProgress JobCheckpoint",
	"one row, by its key":      "AuditHold AuditRenew AuditLetGo AuditResume AuditEnd QueueSet SettingSet SettingGet WorkerGone WatcherRenew WatcherGone",
	"no table":                 "AuditSnapshot JanitorLock JanitorLockTx LockHolder TableHolder WaitAnnounce TakenSend TransactionMark TransactionsOpen TransactionsStillOpen DigestSend PresenceTake PresenceFree",
	"adds what it is told to ": "EventAdd JobEnqueueMany",
}

// listCases are lists of jobs, by name, and how many buffers they may look at. A
// filter that matches few of many jobs is not among them: it looks at many, as
// jobq.List says.
func listCases() map[string]struct {
	page    db.JobPage
	buffers int
} {
	const few = 1_000
	all := []string{"scheduled", "available", "running", "completed", "failed", "cancelled"}
	condition := func(sql string, values ...any) db.Condition {
		return func(_ db.Stage, first int) (string, []any) { return fmt.Sprintf(sql, first), values }
	}
	return map[string]struct {
		page    db.JobPage
		buffers int
	}{
		"all":          {db.JobPage{States: all, Sort: db.SortID}, few},
		"all, deep":    {db.JobPage{States: all, Sort: db.SortID, After: &db.JobKey{ID: 20_100_000}}, few},
		"all, oldest":  {db.JobPage{States: all, Sort: db.SortID, Ascending: true}, few},
		"due":          {db.JobPage{States: all[:1], Sort: db.SortDue, Ascending: true}, few},
		"last due":     {db.JobPage{States: all[:1], Sort: db.SortDue}, few},
		"scheduled":    {db.JobPage{States: all[:1], Sort: db.SortID}, few},
		"running":      {db.JobPage{States: all[2:3], Sort: db.SortID}, few},
		"completed":    {db.JobPage{States: all[3:4], Sort: db.SortID}, few},
		"failed":       {db.JobPage{States: all[4:], Sort: db.SortFinished}, few},
		"failed, deep": {db.JobPage{States: all[4:], Sort: db.SortFinished, After: &db.JobKey{Time: time.Now().Add(-72 * time.Hour), ID: 1}}, few},
		"of a queue":   {db.JobPage{States: all, Sort: db.SortID, Condition: condition("j.queue = any($%d::text[])", []string{"q3"})}, few},
		"one":          {db.JobPage{States: all, Sort: db.SortID, Condition: condition("j.id = $%d::bigint", 20000004)}, few},
	}
}

// Every query has a case, or a reason why it has none.
func TestEveryQueryHasAPlanTest(t *testing.T) {
	t.Parallel()
	known := make(map[string]bool)
	for _, names := range elsewhere {
		for _, name := range strings.Fields(names) {
			known[name] = true
		}
	}
	for _, c := range historyCases() {
		name, _, _ := strings.Cut(c.name, " ")
		known[name] = true
	}
	files, err := filepath.Glob("../../sql/queries/*.sql")
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range regexp.MustCompile(`(?m)^-- name: (\w+)`).FindAllStringSubmatch(string(content), -1) {
			require.True(t, known[query[1]], "%s: add it to historyCases", query[1])
		}
	}
}

// explainBuffers runs a statement and returns how many buffers it has looked at,
// or written to temporary files, those of the functions that it calls included.
func explainBuffers(t *testing.T, conn db.DBTX, statement string, args ...any) int {
	t.Helper()
	var content []byte
	require.NoError(t, conn.QueryRow(context.Background(), "explain (analyze, buffers, timing off, format json) "+statement, args...).Scan(&content), statement)
	var explained []struct {
		Plan struct {
			Hit       int `json:"Shared Hit Blocks"`
			Read      int `json:"Shared Read Blocks"`
			Temporary int `json:"Temp Written Blocks"`
		}
	}
	require.NoError(t, json.Unmarshal(content, &explained))
	top := explained[0].Plan
	return top.Hit + top.Read + top.Temporary
}

// run explains the case, and undoes it.
func (c historyCase) run(t *testing.T, conn *pgxpool.Conn, index int, mode string) {
	t.Helper()
	ctx := context.Background()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	for _, sql := range []string{c.before, "set local plan_cache_mode = " + mode} {
		_, err = tx.Exec(ctx, sql)
		require.NoError(t, err, c.name)
	}
	execute := fmt.Sprintf("execute history_%d", index)
	if c.args != "" {
		execute += "(" + c.args + ")"
	}
	buffers := explainBuffers(t, tx, execute)
	t.Logf("%s: %d buffers", c.name, buffers)
	if buffers <= c.buffers {
		return
	}
	rows, err := tx.Query(ctx, "explain "+execute)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	t.Errorf("%s looks at %d buffers, not %d at most:\n%s", c.name, buffers, c.buffers, strings.Join(plan, "\n"))
}

// The statements of the janitor, the worker, the UI and the CLI cost the same
// however much history and backlog there is: with statistics and without, with
// plans made for any arguments and for these. JOBQ_PLAN_SCALE=1 has the full size,
// which takes minutes and 3 GB of memory; without it there is a tenth.
func TestPlansOfMuchHistory(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	scale := scaleDefault
	if text := os.Getenv(scaleVariable); text != "" {
		var err error
		scale, err = strconv.ParseFloat(text, 64)
		require.NoError(t, err, scaleVariable)
	}
	q := setUp(t)
	q.fillHistory(scale)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	cases := historyCases()
	for i, c := range cases {
		_, err := conn.Exec(ctx, fmt.Sprintf("prepare history_%d as %s", i, q.schema.SQL(c.sql)))
		require.NoError(t, err, c.name)
	}
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			q.exec("vacuum analyze")
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			t.Logf("statistics %s, %s", statistics, mode)
			for i, c := range cases {
				c.run(t, conn, i, mode)
			}
		}
	}
	for name, c := range listCases() {
		c.page.Size = 51
		sql, args := c.page.SQL()
		buffers := explainBuffers(t, conn, sql, args...)
		t.Logf("list %s: %d buffers", name, buffers)
		if buffers > c.buffers {
			t.Errorf("list %s looks at %d buffers, not %d at most", name, buffers, c.buffers)
		}
	}
}
