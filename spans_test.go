package jobq_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq/internal/pgtest"
)

// calendar are the intervals in which months and years are of the calendar, and why; and those that no user gives.
var calendar = map[string]string{
	"parameter delay":                           "added to a time",
	"parameter wake_after":                      "of step_use, which step_sleep calls: added to a time",
	"parameter timeout of step_wait":            "added to a time",
	"parameter retention of keep_from_day":      "subtracted from a date",
	"parameter retention of kept_for":           "subtracted from a date",
	"parameter finished_retention":              "subtracted from a date",
	"parameter failed_retention":                "subtracted from a date",
	"column setting.finished_retention":         "subtracted from a date",
	"column setting.failed_retention":           "subtracted from a date",
	"column queue.retention":                    "subtracted from a date",
	"column queue.failed_retention":             "subtracted from a date",
	"parameter lease":                           "of watch and await, a minute at most",
	"parameter every of history_analyze":        "a constant of the janitor",
	"parameter timeouts of enqueue_arrays":      "written to pending.timeout",
	"parameter backoff_bases of enqueue_arrays": "written to pending.backoff_base",
	"parameter backoff_maxes of enqueue_arrays": "written to pending.backoff_max",
	"parameter timeouts of jobs_problem":        "the same",
	"parameter backoff_bases of jobs_problem":   "the same",
	"parameter backoff_maxes of jobs_problem":   "the same",
	"parameter shortest of sweep_next":          "passed to keep_from_day",
	"parameter longest of sweep_next":           "passed to keep_from_day",
	"parameter period of why_rate":              "reads queue.rate_period and queue.key_rate_period",
	"parameter delays":                          "of seconds that Go gives",
	"parameter lease_time of lane_claim":        "reads queue.lease",
	"parameter lease_time of claim_alone":       "reads queue.lease",
	"parameter spans of has_months":             "asks",
	"parameter rate_period":                     "of functions that read the column queue.rate_period",
	"parameter base of backoff_delay":           "reads pending.backoff_base",
	"parameter cap of backoff_delay":            "reads pending.backoff_max",
	"column run.timeout":                        "was in pending before",
	"column run.backoff_base":                   "was in pending before",
	"column run.backoff_max":                    "was in pending before",
	"parameter timeout of job_problem":          "refused by it, in words: see the calls below",
	"parameter backoff_base of job_problem":     "the same",
	"parameter backoff_max of job_problem":      "the same",
	"parameter timeouts of kind_defaults":       "were checked by jobs_problem",
	"parameter backoff_bases of kind_defaults":  "the same",
	"parameter backoff_maxes of kind_defaults":  "the same",
}

// Goal: where seconds are meant, a month or a year is refused, and not taken for 30 or 365.25 days.
// Method: all parameters and columns of type interval are looked up; each is refused below, or is in the list with its reason.
func TestNoMonthsWhereSecondsAreMeant(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := context.Background()
	for _, month := range []string{"1 month", "1.5 months", "1 year", "2 years 3 days"} {
		refused := map[string]string{
			"parameter timeout":                "select jobq.enqueue('k', timeout => '%s')",
			"parameter backoff_base":           "select jobq.enqueue('k', backoff_base => '%s')",
			"parameter backoff_max":            "select jobq.enqueue('k', backoff_max => '%s')",
			"column pending.timeout":           "insert into jobq.pending (kind, timeout) values ('k', '%s')",
			"column pending.backoff_base":      "insert into jobq.pending (kind, backoff_base) values ('k', '%s')",
			"column pending.backoff_max":       "insert into jobq.pending (kind, backoff_max) values ('k', '%s')",
			"column kind_setting.timeout":      `select jobq.act_kind_set('a', 'k', '{"timeout": "%s"}')`,
			"column kind_setting.backoff_base": `select jobq.act_kind_set('a', 'k', '{"backoff_base": "%s"}')`,
			"column kind_setting.backoff_max":  `select jobq.act_kind_set('a', 'k', '{"backoff_max": "%s"}')`,
			"parameter every":                  "select jobq.schedule_set('s', kind => 'k', actor => 'a', every => '%s')",
			"parameter catch_up_within":        "select jobq.schedule_set('s', kind => 'k', actor => 'a', every => '1 h', catch_up_within => '%s')",
			"column schedule.every":            "insert into jobq.schedule (name, kind, every) values ('s', 'k', '%s')",
			"column schedule.timeout":          "insert into jobq.schedule (name, kind, every, timeout) values ('s', 'k', '1 h', '%s')",
			"column schedule.backoff_base":     "insert into jobq.schedule (name, kind, every, backoff_base) values ('s', 'k', '1 h', '%s')",
			"column schedule.backoff_max":      "insert into jobq.schedule (name, kind, every, backoff_max) values ('s', 'k', '1 h', '%s')",
			"column schedule.catch_up_within":  "insert into jobq.schedule (name, kind, every, catch_up_within) values ('s', 'k', '1 h', '%s')",
			"window":                           `select jobq.enqueue('k', unique_key => 'u', uniqueness => '{"window": "%s"}')`,
			"for":                              `select jobq.enqueue('k', unique_key => 'u', uniqueness => '{"for": "%s"}')`,
		}
		for _, column := range []string{"lease", "extend_every", "stale_grace", "redelivery_delay", "rate_period", "key_rate_period", "age_after"} {
			refused["column queue."+column] = `select jobq.act_queue_set('a', 'q', '{"` + column + `": "%s", "rate_jobs": 1, "key_rate_jobs": 1, "rate_period": "1 s", "key_rate_period": "1 s"}')`
		}
		refused["column queue.rate_period"] = `select jobq.act_queue_set('a', 'q', '{"rate_period": "%s", "rate_jobs": 1}')`
		refused["column queue.key_rate_period"] = `select jobq.act_queue_set('a', 'q', '{"key_rate_period": "%s", "key_rate_jobs": 1}')`
		for what, sql := range refused {
			_, err := pool.Exec(ctx, fmt.Sprintf(sql, month))
			require.Error(t, err, what)
			require.Regexp(t, "without months|weeks, days, hours|in days, hours|at most half|must be 1 second to 30 days|must be 0 to 30 days|must be whole seconds, 1 second to 366 days|must be 1 to|positive|together", err.Error(), what)
		}
		rows, err := pool.Query(ctx, `
			select distinct format('parameter %s', a.name), format('parameter %s of %s', a.name, p.proname)
				from pg_proc p
				cross join lateral unnest(p.proargnames, coalesce(p.proallargtypes, p.proargtypes::oid[]), coalesce(p.proargmodes, array_fill('i'::"char", array[p.pronargs::integer]))) as a(name, type, mode)
				where p.pronamespace = 'jobq'::regnamespace and a.type in ('interval'::regtype, 'interval[]'::regtype) and a.mode in ('i', 'b')
			union all
			select format('column %s.%s', c.relname, a.attname), ''
				from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
				where c.relnamespace = 'jobq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and 'interval'::regtype in (t.oid, t.typbasetype)`)
		require.NoError(t, err)
		var unknown []string
		for rows.Next() {
			var name, precise string
			require.NoError(t, rows.Scan(&name, &precise))
			if _, tested := refused[name]; !tested && calendar[name] == "" && calendar[precise] == "" {
				unknown = append(unknown, name+", "+precise)
			}
		}
		require.NoError(t, rows.Err())
		require.Empty(t, unknown, "do these mean seconds?")
	}
}

// A unique key that is kept for a day, or in windows of a day, is kept for 24 hours also on a day of 23 in the session's time zone.
func TestUniqueDayHas24Hours(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := context.Background()
	for _, rule := range []string{`{"for": "1 day"}`, `{"window": "1 day"}`} {
		var problem *string
		var until time.Time
		tx, err := pool.Begin(ctx)
		require.NoError(t, err)
		_, err = tx.Exec(ctx, "set local time zone 'Europe/Berlin'")
		require.NoError(t, err)
		// The clock goes forward on 29 March 2026 at 01:00 UTC.
		moment := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC)
		require.NoError(t, tx.QueryRow(ctx, "select problem, until from jobq.unique_rule($1, 'x', '{}', $2)", rule, moment).Scan(&problem, &until))
		require.NoError(t, tx.Rollback(ctx))
		require.Nil(t, problem)
		ends := []time.Time{moment.Add(24 * time.Hour), time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)}
		require.True(t, slices.ContainsFunc(ends, until.Equal), until.UTC())
	}
}
