package tests

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
	// scaleMax has 11 million jobs in the history.
	scaleMax = 3.7
)

// elsewhere are the queries that are not among the cases, and why.
var elsewhere = map[string]string{
	"TestHistoryAnalyzeIsBounded": "HistoryAnalyze",
	"TestPlansOfAMillion":         "JobClaim RunEnd LeaseEnd LeaseExtend",
	"one row, by its key":         "AuditHold AuditRenew AuditLetGo AuditResume AuditEnd QueueIs QueueSet KindIs KindSet SettingSet SettingGet WorkerGone WatcherRenew WatcherGone JanitorBeat JanitorSeen JanitorLast ScheduleGet SchedulePause ScheduleResume ScheduleRemove ScheduleRun ScheduleTurn",
	"no table":                    "LaneMore AuditSnapshot JobsAdded JanitorLock JanitorLockTx JanitorTurn LockHolder TableHolder SessionBlockers NotificationsFull WaitAnnounce TakenSend SleepAnnounce LineChangers StillOpen DigestSend PresenceTake PresenceFree",
	"adds what it is told to ":    "EventAdd JobEnqueueMany",
}

// Why a job in a long line is not running costs the same wherever it is in the line, also
// when the planner knows nothing of the table yet: up to 10,000 jobs before it are
// looked at, and never the line.
func TestWhyInALongLine(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const length, buffersMax = 200_000, 600
	q := setUp(t)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	for _, sql := range []string{
		"alter table jobq.pending set (autovacuum_enabled = off)",
		"set session_replication_role = replica", // no triggers
		fmt.Sprintf("insert into jobq.pending (id, position, kind, queue) select i, i, 'k', 'q' from generate_series(1, %d) i", length),
		fmt.Sprintf("select setval('jobq.job_id_seq', %d)", length),
		"set session_replication_role = origin",
		`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{"q": 10}', '{k}', '{}')`,
	} {
		_, err := conn.Exec(ctx, sql)
		require.NoError(t, err)
	}
	for _, statistics := range []string{"absent", "fresh"} {
		for _, id := range []int{1, length / 2, length} {
			buffers := fewestBuffers(buffersMax, func() int { return explainBuffers(t, conn, "select * from jobq.why($1)", id) })
			t.Logf("statistics %s, job %d: %d buffers", statistics, id, buffers)
			require.LessOrEqual(t, buffers, buffersMax, "statistics %s, job %d", statistics, id)
		}
		_, err := conn.Exec(ctx, "analyze jobq.pending")
		require.NoError(t, err)
	}
}

// Why a job waits whose key came in behind very many hints costs a bounded look at these.
func TestWhyBehindManyHints(t *testing.T) {
	t.Parallel()
	q := setUp(t)
	q.exec("alter table jobq.lane_hint set (autovacuum_enabled = off)")
	q.exec(`insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('w', 1, 'h', 'v', '{"q": 10}', '{k}', '{}')`)
	q.exec("insert into jobq.lane_hint (queue, key) select 'q', 'key ' || i % 100 from generate_series(1, 200000) i")
	q.exec("insert into jobq.pending (id, kind, queue, partition_key) overriding system value values (1, 'k', 'q', 'last')")
	for _, statistics := range []string{"absent", "fresh"} {
		buffers := fewestBuffers(600, func() int { return explainBuffers(t, q.pool, "select * from jobq.why(1)") })
		t.Logf("statistics %s: %d buffers", statistics, buffers)
		require.LessOrEqual(t, buffers, 600, "statistics %s", statistics)
		q.exec("analyze jobq.lane_hint")
	}
	require.Equal(t, 1, q.number("select count(*) from jobq.why(1) where reason = 'next_in_line' and facts ->> 'partition_key' = 'last' and not facts ? 'keys_before'"), "how many get their turns before is not known")
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

// looksMax is how often a statement that looks at too many buffers is tried. Whenever autovacuum ends with a
// table, sessions read the catalog of all partitions anew: some thousand buffers more. On a busy machine that
// was seen twice in a row.
const looksMax = 6

// fewestBuffers calls explain until it says no more than limit, looksMax times at most, and returns the fewest buffers.
func fewestBuffers(limit int, explain func() int) int {
	buffers := explain()
	for look := 1; buffers > limit && look < looksMax; look++ {
		buffers = min(buffers, explain())
	}
	return buffers
}

// run explains the case, and undoes it.
func (c historyCase) run(t *testing.T, conn *pgxpool.Conn, index int, mode string) {
	t.Helper()
	var plan []string
	buffers := fewestBuffers(c.buffers, func() (buffers int) {
		buffers, plan = c.explain(t, conn, index, mode)
		t.Logf("%s: %d buffers of %d", c.name, buffers, c.buffers)
		return buffers
	})
	if buffers > c.buffers {
		t.Errorf("%s looks at %d buffers, not %d at most:\n%s", c.name, buffers, c.buffers, strings.Join(plan, "\n"))
	}
}

// runCases runs all cases over one connection, without statistics and after analyze has made some, with plans for any
// arguments and with plans for these.
func (q *queue) runCases(conn *pgxpool.Conn, cases []historyCase, analyze func()) {
	q.Helper()
	for i, c := range cases {
		_, err := conn.Exec(context.Background(), fmt.Sprintf("prepare history_%d as %s", i, q.schema.SQL(c.sql)))
		require.NoError(q, err, c.name)
	}
	for _, statistics := range []string{"absent", "fresh"} {
		if statistics == "fresh" {
			analyze()
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			q.Logf("statistics %s, %s", statistics, mode)
			for i, c := range cases {
				c.run(q.T, conn, i, mode)
			}
		}
	}
}

// explain returns what the case looks at, and its plan, and undoes what it did.
func (c historyCase) explain(t *testing.T, conn *pgxpool.Conn, index int, mode string) (buffers int, plan []string) {
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
	buffers = explainBuffers(t, tx, execute)
	rows, err := tx.Query(ctx, "explain "+execute)
	require.NoError(t, err)
	plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return buffers, plan
}

// The statements of the janitor, the worker, the UI and the CLI cost the same
// however much history and backlog there is: without statistics and with those that
// autovacuum and the janitor make, with
// plans made for any arguments and for these. JOBQ_PLAN_SCALE=1 has the full size,
// which takes minutes and 3 GB of memory; without it there is a tenth. JOBQ_PLAN_SCALE=3.4
// has 10 million jobs in the history, and needs three times as much.
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
	q.runCases(conn, cases, q.analyzed)
	q.checkLists(conn)
}
