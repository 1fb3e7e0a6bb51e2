package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/pgtest"
)

// Every statement that writes a lease, a run, or what a run says of itself names
// the lease's token, its owner and its claim, and that the lease is not lost; the reaper,
// which has neither, names the expiry, and marks the lease.
func TestEveryLeaseWriteIsFenced(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../sql/queries/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	touches := regexp.MustCompile(`(delete from|update|insert into) jobq\.(run|lease|past_lease|progress|output)\s|for (no key )?(update|key share|share).*\n*`)
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(content), "-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			query, _, _ = strings.Cut(query, ";\n")
			if !touches.MatchString(query) || !regexp.MustCompile(`jobq\.(run|lease|progress|output)\s`).MatchString(query) {
				continue
			}
			found = append(found, name)
			query = strings.Join(strings.Fields(query), " ")
			switch name {
			case "LeaseReap":
				require.Regexp(t, `(?s)l\.expires_at < clock_timestamp\(\).*for update of l skip locked.*lost_at = clock_timestamp.*delete`, query, "the expiry must be checked on the row as locked")
			case "LeaseShorten": // it ends no lease: it takes back time that no owner may have
				require.Regexp(t, `(?s)x\.lost_at is null and x\.expires_at > clock_timestamp\(\) \+ .*for `, query)
			case "NextDue": // it writes janitor_seen, and reads leases
				require.NotRegexp(t, `(update|delete from|insert into) jobq\.(run|lease|progress)\b`, query)
			case "JobClaim", "LaneTake", "OutputPrune", "ProgressPrune": // a new lease, and what has no run any more
			default:
				require.Regexp(t, `owner = sqlc\.arg\(owner\) (and l\.claimed_at = (sqlc\.arg\(claimed_at\)|f\.claimed_at) )?and \w\.lost_at is null`, query, name)
				require.Regexp(t, `\w\.claimed_at = (sqlc\.arg\(claimed_at\)|[fh]\.claimed_at)`, query, "%s: an id alone may be another lease's", name)
			}
		}
	}
	slices.Sort(found)
	require.Equal(t, []string{
		"JobClaim", "LaneTake", "LeaseEnd", "LeaseExtend", "LeaseReap", "LeaseShorten", "NextDue", "OutputAppend", "OutputPrune", "ProgressPrune", "RunCheckpoint", "RunCompleteTx",
		"RunEnd", "RunHold", "RunProgress",
	}, found)
}

// A function that forbids a kind of plan forbids compiled ones, too: what is forbidden and
// done all the same, for want of another way, costs so much in the planner's eyes that it
// would compile the statement, for a third of a second, each time on a table of few rows.
func TestForbiddenPlansAreNotCompiled(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	names := func(condition string) []string {
		rows, err := pool.Query(context.Background(), `select p.proname::text from pg_proc p
			where p.pronamespace = 'jobq'::regnamespace and p.proconfig::text ~ 'enable_[a-z]+=off' and `+condition+` order by 1`)
		require.NoError(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return found
	}
	require.NotEmpty(t, names("p.proconfig @> '{jit=off}'"))
	require.Empty(t, names("not p.proconfig @> '{jit=off}'"), "set enable_… = off without set jit = off")
}

// The hot statements keep their plans, made on empty tables and never
// analysed, with many rows: index lookups only, and no sort of what waits.
func TestHotPlans(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	q := setUp(t)
	conn, err := q.pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(ctx) }()
	_, err = tx.Exec(ctx, db.HotSettings)
	require.NoError(t, err)
	const one = "'{1}', '{1}'"
	statements := map[string]struct{ sql, args, needs string }{
		"claim":       {db.JobClaim, "'{-32769}', '{0}', '{32767}', 'default', '{k}', false, true, 100, '1 hour', 10, 10, 'a', false", "pending_claim_idx"},
		"claim each":  {db.JobClaim, "'{-32769}', '{0}', '{32767}', 'default', '{k}', false, true, 100, '1 hour', 10, 10, 'a', true", "pending_claim_idx"},
		"lane take":   {db.LaneTake, "'1 hour', 10, 'a', 'default'", "payload_pkey"},
		"lease end":   {db.LeaseEnd, "'a', '{1}', '{2}', '{7}', '{1}', '{1}', '{now}', '{1}', '{1}', '{1}', '1 min', '{1}', '{k}', '{1}', '{0}'", "lease_pkey"},
		"lease look":  {db.LeaseLook, "'{1}', '{now}', 'a'", "lease_pkey"},
		"end":         {db.RunEnd, one + ", '{now}', '{t}', '{failed}', '{e}', array['']::text[], array[null]::interval[], '{f}', '{0}', '{f}', '{null}', '{null}', 'a'", "lease_pkey"},
		"held":        {db.RunHeld, one + ", '{now}', 'a'", "lease_pkey"},
		"extend":      {db.LeaseExtend, "'1 hour', 'a', '{1}', '{now}', '1 hour'", "lease_pkey"},
		"progress":    {db.RunProgress, "1, 's', 'm', null, 1, 1, 'a', now()", "lease_pkey"},
		"checkpoint":  {db.RunCheckpoint, "'{}', 1, 1, 'a', now(), null", "lease_pkey"},
		"complete tx": {db.RunCompleteTx, "null, 1, 1, 'a', now()", "lease_pkey"},
		"fate":        {db.RunFate, "1, 1, 'a', now(), true", "lease_pkey"},
		"hold":        {db.RunHold, "1, 1, 'a', now()", "lease_pkey"},
		"output":      {db.OutputAppend, "0, 1, 'x', 1, 1, 'a', now(), 0", "lease_pkey"},
	}
	prepared := func(name string) string { return "hot_" + strings.ReplaceAll(name, " ", "_") }
	for name, statement := range statements {
		_, err := tx.Exec(ctx, fmt.Sprintf("prepare %s as %s", prepared(name), q.schema.SQL(statement.sql)))
		require.NoError(t, err, name)
	}
	explain := func(when string) {
		for name, statement := range statements {
			rows, err := tx.Query(ctx, fmt.Sprintf("explain execute %s(%s)", prepared(name), statement.args))
			require.NoError(t, err, name)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := strings.Join(lines, "\n")
			for _, bad := range []string{"Seq Scan", "Bitmap", "Merge Join"} {
				require.NotContains(t, plan, bad, "%s, %s:\n%s", name, when, plan)
			}
			require.Contains(t, plan, "using "+statement.needs, "%s, %s:\n%s", name, when, plan)
			if statement.needs == "pending_claim_idx" {
				require.Contains(t, plan, "Tid Scan on pending", "%s:\n%s", when, plan)
				// What was taken is numbered in order; from PostgreSQL 16 on, the plan shows that as a sort.
				sorted := regexp.MustCompile(`Sort  [^\n]*\n(\s+Disabled: true\n)?\s+Sort Key: [^\n]*\n\s+->  CTE Scan on taken`)
				require.NotContains(t, sorted.ReplaceAllString(plan, ""), "Sort", "%s:\n%s", when, plan)
			}
			// Of run, only what is found by its id or its place, or as what is to be cancelled.
			for _, line := range lines {
				if strings.Contains(line, "Scan") && strings.Contains(line, " on run_") {
					require.Regexp(t, `Tid Scan on run_|Index (Only )?Scan using run_\w+_(id|lease_id|place)_idx on run_`, line, "%s, %s:\n%s", name, when, plan)
				}
			}
		}
	}
	explain("on empty tables")
	_, err = tx.Exec(ctx, "insert into jobq.pending (kind, queue, priority) select 'k', 'q' || i % 10, i % 5 from generate_series(1, 100000) i")
	require.NoError(t, err)
	explain("on a large table without statistics")
	_, err = tx.Exec(ctx, "analyze jobq.pending")
	require.NoError(t, err)
	explain("with statistics")
}

// Names that could leave their quotes are refused; what is left can be put
// into any statement.
func FuzzSchema(f *testing.F) {
	for _, name := range []string{"jobq", "My-Schema", `a"b`, "a'b", "pg_x", "", "ä"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		schema, err := db.NewSchema(name)
		if err != nil || name == "" {
			return
		}
		require.NotContains(t, name, `"`)
		require.NotContains(t, name, `'`)
		require.Equal(t, `select from "`+name+`".pending`, schema.SQL("select from jobq.pending"))
		require.LessOrEqual(t, len(db.Channel(name, db.TopicCancel)), 63)
	})
}

// What a suspect is stands in many statements, and is the same in all. Those of the janitor about jobs that are due
// leave suspects out: it would wake for them again and again, and no promotion takes them.
func TestSuspectsAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	const leftOut = "greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0"
	is := regexp.MustCompile(`crashes (>=|<) least\(2, coalesce\((\w+\.)?lost \+ 1, (\w+\.)?max_attempts - (\w+\.)?attempts(::integer)?\)\)` +
		`|r\.crashes \+ 1 (>=|<) least\(2, coalesce\(n\.lost \+ 1, r\.max_attempts - n\.attempts\)\)` + // after this loss
		`|job\.crashes >= least\(2, coalesce\(job\.lost \+ 1, \(wanted -> 'max_attempts'\)::integer - job\.attempts\)\)` + // after this edit
		"|" + regexp.QuoteMeta(leftOut))
	comment := regexp.MustCompile("--.*")
	files, err := filepath.Glob("../../sql/*/*.sql")
	require.NoError(t, err)
	var leaveOut []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		code := strings.Join(strings.Fields(comment.ReplaceAllString(string(content), "")), " ")
		require.Len(t, is.FindAllString(code, -1), strings.Count(code, "least(2,"), file)
		for _, query := range strings.Split(string(content), "-- name: ")[1:] {
			query, _, _ = strings.Cut(strings.Join(strings.Fields(query), " "), "; ")
			if name, _, _ := strings.Cut(query, " "); strings.Contains(query, leftOut) {
				leaveOut = append(leaveOut, name)
			}
		}
	}
	slices.Sort(leaveOut)
	require.Equal(t, []string{"DoctorOverdue", "DueFirst", "DueNext", "JobPromote", "NextDue", "SessionFacts"}, leaveOut)
}
