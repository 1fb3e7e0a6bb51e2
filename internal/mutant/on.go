//go:build jobq_mutant

package mutant

import (
	"fmt"
	"os"
	"strings"
)

// The mutants, by the names that faults.md gives them.
const (
	completeWithoutToken = "complete-without-token"
	extendWithoutToken   = "extend-without-token"
	reapWithoutRecheck   = "reap-without-recheck"
	reapWithoutBump      = "reap-without-bump"
	noPolling            = "no-polling"
	uncountedRelease     = "uncounted-release"
	prefixHost           = "prefix-host"
	lockIgnored          = "lock-ignored-unfenced-reap"
	// The owner is asked for, and its old token will do.
	extendOldToken     = "extend-old-token"
	endOldToken        = "end-old-token"
	progressOldToken   = "progress-old-token"
	checkpointOldToken = "checkpoint-old-token"
	// Faults of the janitor that a session by itself does not show.
	promoteUnbounded = "promote-unbounded"
	rescueNeedsLock  = "rescue-needs-lock"
)

// change is a piece of a query and what the mutant has in its place.
type change struct{ query, from, to string }

// unfenced is a reap that looks first and takes later, as from a snapshot.
var unfenced = []change{
	{"LeaseReap", "select r.ctid as place\n", "select r.id, r.ctid as place\n"},
	{"LeaseReap", "    for update of r skip locked\n), taken as (", "\n), slept as materialized (select pg_sleep(0.3) from (select count(*) from stale) s), taken as ("},
	{"LeaseReap", "where r.ctid = any(array(select s.place from stale s))", "where r.id = any(array(select s.id from stale s, slept))"},
}

var changes = map[string][]change{
	completeWithoutToken: {{"JobComplete", " and x.lease_token = f.token", ""}, {"JobComplete", " and f.token = t.lease_token", ""}},
	extendWithoutToken:   {{"LeaseExtend", "x.lease_token = h.token and x.lease_owner = $3", "$3::text is not null"}},
	reapWithoutRecheck:   unfenced,
	reapWithoutBump:      {{"LeaseReap", "t.attempts + 1 as attempts", "t.attempts as attempts"}},
	noPolling:            nil,
	rescueNeedsLock:      nil,
	promoteUnbounded:     {{"JobPromote", "limit $3::integer", "limit $3::integer * 100000"}},
	uncountedRelease:     {{"JobEnd", "t.attempts + case when f.outcome in ('failed', 'timed_out') then 1 else 0 end as attempts", "t.attempts as attempts"}, {"JobEnd", "(f.final or t.attempts + 1 >= t.max_attempts)", "f.final"}},
	prefixHost: {{
		"LeaseReap", "else r.lease_owner = any($1::text[])",
		`else exists (select from unnest($1::text[]) o where r.lease_owner like regexp_replace(o, '-\d+-[0-9a-f]{8}$', '') || '-%')`,
	}},
	lockIgnored: append([]change{
		{"JanitorLock ", "pg_try_advisory_lock($1::integer, $2::integer)", "($1::integer + $2::integer) is not null"},
		{"JanitorLockTx ", "pg_try_advisory_xact_lock($1::integer, $2::integer)", "($1::integer + $2::integer) is not null"},
	}, unfenced...),
	extendOldToken:     {{"LeaseExtend", "x.lease_token = h.token and ", ""}},
	endOldToken:        {{"JobEnd", " and x.lease_token = f.token", ""}, {"JobEnd", " and f.token = t.lease_token", ""}},
	progressOldToken:   {{"JobProgress", "x.lease_token = $6 ", "$6::bigint is not null "}},
	checkpointOldToken: {{"JobCheckpoint", "r.lease_token = $4 ", "$4::bigint is not null "}},
}

func active() string { return os.Getenv("JOBQ_MUTANT") }

// Polls says whether idle queues are polled.
func Polls() bool { return active() != noPolling }

// Rescues says whether janitors do overdue work without the lock.
func Rescues() bool { return active() != rescueNeedsLock }

// SQL returns the query as the active mutant has it. A change that finds
// nothing to change is a mistake of this file, and ends the program.
func SQL(query string) string {
	name := active()
	wanted, known := changes[name]
	if name != "" && !known {
		panic("no mutant " + name)
	}
	for _, c := range wanted {
		if !strings.HasPrefix(query, "-- name: "+c.query) {
			continue
		}
		if !strings.Contains(query, c.from) {
			panic(fmt.Sprintf("mutant %s finds no %q in %s", name, c.from, query))
		}
		query = strings.ReplaceAll(query, c.from, c.to)
	}
	return query
}
