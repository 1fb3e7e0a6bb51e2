//go:build jobq_mutant

package mutant

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// The mutants, by the names that faults.md gives them.
const (
	completeWithoutToken = "complete-without-token"
	extendWithoutToken   = "extend-without-token"
	reapWithoutRecheck   = "reap-without-recheck"
	reapWithoutBump      = "reap-without-bump"
	noPolling            = "no-polling"
	claimGivesUp         = "claim-gives-up" // at a row that it cannot read
	uncountedRelease     = "uncounted-release"
	prefixHost           = "prefix-host"
	lockIgnored          = "lock-ignored-unfenced-reap"
	// The owner is asked for, and its old token will do.
	extendOldToken     = "extend-old-token"
	endOldToken        = "end-old-token"
	progressOldToken   = "progress-old-token"
	checkpointOldToken = "checkpoint-old-token"
	// Faults of leases that hold many jobs.
	lostLeaseEnds   = "bulk-end-of-lost-lease" // not refused
	recordedUnasked = "recorded-before-stored" // an end on its own row, which somebody has kept from being stored
	begunIgnored    = "begun-ignored"          // a reap that counts what has not begun
	closeLocked     = "close-with-locked-run"  // a lease of which somebody keeps a job from being reaped
	endTwice        = "end-counted-twice"      // what was stored, and the answer lost
	// Faults of the janitor that a session by itself does not show.
	promoteUnbounded = "promote-unbounded"
	rescueNeedsLock  = "rescue-needs-lock"
	// Faults of schedules, of which each tick is to fire once.
	cursorWithoutInsert = "cursor-without-insert" // of several due ticks, one is passed by
	tickNotUnique       = "tick-not-unique"       // the leader's lock alone keeps a tick from firing twice, and is ignored
	// Faults of the limits of queues.
	limitNotCounted   = "limit-not-counted"   // a claim takes what it likes
	keyNotCounted     = "key-not-counted"     // a claim forgets what a partition key holds
	limitCountedEarly = "limit-counted-early" // before other claims have committed, and not in turn with them
	rateNotCharged    = "rate-not-charged"    // what a claim has taken is not charged
	keyRateForgotten  = "key-rate-forgotten"  // a claim forgets what a partition key has used of its rate
	// A program's own end is stored whatever token it has: the lab changes the function.
	ownUnfenced = "own-end-without-token"
	// Faults of jobs that wait for others, also in functions that the lab changes.
	newParentOnce    = "new-parent-looked-at-once" // one that ends at that moment is missed
	firstParentFrees = "first-parent-frees"        // and not the last one
	awaitUnannounced = "await-not-announced"       // a job that begins to await others tells nobody
	// Of a key whose jobs run in order, another one is taken for the next, likewise.
	headForgotten = "head-forgotten"
	retryPassed   = "retry-passed"
	// Jobs that were lost with their workers come back to the line, and are claimed beside others.
	suspectBeside = "suspect-beside-others"
	// A janitor keeps its place in a day in its memory, likewise.
	sweepForgotten = "sweep-place-in-memory"
	// Ids of jobs and tokens go on where a promoted standby was, likewise.
	idsRepeat = "ids-repeat"
	// Ids of leases are the clock's, also before 2026; and a rate is used up until a time that no claim can have left. Likewise.
	leasesByClock = "lease-ids-by-the-clock"
	rateAheadKept = "rate-ahead-kept"
	// The tables without a key have no replica identity, likewise.
	identityForgotten = "no-replica-identity"
	// Claims take turns by advisory locks, which any login can take, likewise.
	turnsAdvisory = "turns-as-advisory-locks"
	// A job that waits for an event does not take turns with its emitter, likewise.
	eventUnlocked = "event-without-turns"
	// A worker leaves what a program has left whose supervisor was killed.
	orphansLeft = "orphans-not-adopted"
	// A worker does not look for inserts that have left the notification to another one.
	bellTrusted = "bell-trusted"
	// A frozen run goes on when the database answers, whatever it answers.
	frozenGoesOn = "frozen-goes-on"
	// A lease that could not be extended in an outage is left alone for an hour.
	patienceEndless = "patience-without-bound"
	patienceNone    = "patience-none" // or is taken at once
)

// change is a piece of a query and what the mutant has in its place.
type change struct{ query, from, to string }

// unfenced is a reap that looks first and takes later, as from a snapshot.
var unfenced = []change{
	{"LeaseReap", "    for update of l skip locked\n), sure as", "\n), slept as materialized (select pg_sleep(0.3) from (select count(*) from stale) s), sure as"},
	{"LeaseReap", "any(array(select s.place from stale s))", "any(array(select s.place from stale s, slept))"},
}

// unlocked has every janitor lead.
var unlocked = []change{
	{"JanitorLock ", "pg_try_advisory_lock($1::integer, $2::integer)", "($1::integer + $2::integer) is not null"},
	{"JanitorTurn ", "pg_try_advisory_xact_lock($1::integer, $2::integer)", "($1::integer + $2::integer) is not null"},
	{"JanitorLockTx ", "pg_try_advisory_xact_lock($1::integer, $2::integer)", "($1::integer + $2::integer) is not null"},
}

// How a schedule fires, and how it does without a look at its cursor, its revision and
// the ticks that it has fired.
const (
	scheduleFire = "jobq.schedule_fire($1::text, $2::bigint, $3::timestamptz, $4::timestamptz[],\n    $5::timestamptz, $6::timestamptz) as f(jobs)"
	movedAnyhow  = "with moved as (update jobq.schedule x set cursor_at = greatest(x.cursor_at, $5::timestamptz), due_at = $6::timestamptz where x.name = $1::text and $2::bigint is not null and $3::timestamptz is not null returning x as schedule)\n"
)

// How a queue with limits admits jobs, and how it does as a mutant says.
const (
	admitCall = "select a.admitted::integer as admitted, a.blocked::text as blocked, a.wait_ms::bigint as wait_ms\n  from jobq.queue_admit($1, $2::integer, $3::integer, $4::boolean, $5::boolean) a"
	admitted  = `, slept as materialized (select c.admitted, pg_sleep(0.1) from c)
		select s.admitted, case when s.admitted < $2::integer then 'limit' else '' end as blocked, 0::bigint as wait_ms from slept s
			where set_config('jobq_claim.admitted', s.admitted::text, true) is not null and $3::integer is not null and $4::boolean is not null and $5::boolean is not null`
	admittedEarly = `with c as materialized (
			select least($2::integer, greatest(q.max_running - coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0), 0))::integer as admitted
				from jobq.queue q left join jobq.lease l on l.queue = q.name where q.name = $1 group by q.max_running
		)` + admitted
	admittedForgetful = "with forgotten as (update jobq.lane l set held_leases = '{}', held_slots = '{}', full_limit = null, turn = coalesce(l.turn, nextval('jobq.lane_turn_seq')) where l.queue = $1 and l.key <> '')\n" + admitCall
	admittedUnrated   = "with forgotten as (update jobq.lane l set rate_ready_at = null, throttled_until = null, turn = coalesce(l.turn, nextval('jobq.lane_turn_seq')) where l.queue = $1 and l.key <> '')\n" + admitCall
	admittedUncounted = "with c as materialized (select $2::integer as admitted where $1::text is not null)" + admitted
)

// The runs that a statement's lease and owner have, by what the mutants take from it.
const (
	endFence        = "x.id = f.id and x.lease_id = f.token and x.state is null\n          and (select l.owner = $14 and l.claimed_at = f.claimed_at and l.lost_at is null and x.slot <> all(l.ended_slots)\n            from jobq.lease l where l.id = f.token limit 1)\n"
	progressFence   = "x.lease_id = $6 and x.state is null\n      and (select l.owner = $7 and l.claimed_at = $8 and l.lost_at is null and x.slot <> all(l.ended_slots)\n        from jobq.lease l where l.id = $6 limit 1)"
	checkpointFence = "x.lease_id = $3 and x.state is null\n      and (select l.owner = $4 and l.claimed_at = $5 and l.lost_at is null and x.slot <> all(l.ended_slots)\n        from jobq.lease l where l.id = $3 limit 1)"
	extendFence     = "x.id = h.id and x.claimed_at = h.claimed_at and x.owner = $2"
	// What ended elsewhere, if its row says so; and without the look at the row.
	elsewhereOver = "select o.lease_id, o.slots\n    from rows from (\n      jobq.runs_over($2::bigint[], $3::smallint[], $4::bigint[])\n    ) as o(lease_id, slots)\n    where cardinality($4::bigint[]) > 0"
	elsewhereAll  = "select o.lease_id, array_agg(distinct o.slot) as slots from unnest($2::bigint[], $3::smallint[], $4::bigint[]) as o(lease_id, slot, job_id) group by o.lease_id"
)

// anyToken has RunEnd end the current run of each job, whatever token it was given.
func anyToken(fence string) []change {
	return []change{
		{"RunEnd", endFence, fence + "\n"},
		{"RunEnd", "l.id = f.token and x.slot", "l.id = x.lease_id and x.slot"},
		{"RunEnd", "r.lease_id = any($2::bigint[])", "true"},
	}
}

var changes = map[string][]change{
	completeWithoutToken: anyToken("x.id = f.id and x.state is null and $14::text is not null"),
	extendWithoutToken:   {{"LeaseExtend", extendFence, "x.id >= h.id and $2::text is not null"}},
	reapWithoutRecheck:   unfenced,
	reapWithoutBump:      {{"LeaseReap", "r.attempts + (r.counted and b.max_lost is null)::integer as attempts", "r.attempts as attempts"}},
	noPolling:            nil,
	claimGivesUp:         nil,
	ownUnfenced:          nil,
	newParentOnce:        nil,
	firstParentFrees:     nil,
	eventUnlocked:        nil,
	turnsAdvisory:        nil,
	sweepForgotten:       nil,
	orphansLeft:          nil,
	bellTrusted:          nil,
	frozenGoesOn:         nil,
	patienceEndless:      nil,
	patienceNone:         nil,
	suspectBeside: {
		{"JobPromote", " and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0", ""},
		{"NextDue ", "and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0", ""},
		{"DueFirst", " and greatest(least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts::integer)) - p.crashes, 0) <> 0", ""},
	},
	awaitUnannounced:  nil,
	headForgotten:     nil,
	retryPassed:       nil,
	rescueNeedsLock:   nil,
	promoteUnbounded:  {{"JobPromote", "limit $3::integer", "limit $3::integer * 100000"}},
	uncountedRelease:  {{"RunEnd", "h.attempts + case when f.outcome in ('failed', 'timed_out') then 1 else 0 end as attempts", "h.attempts as attempts"}, {"RunEnd", "jobq.next_state(f.outcome, h.attempts,", "jobq.next_state(f.outcome, -1,"}},
	identityForgotten: nil,
	idsRepeat:         nil,
	leasesByClock:     nil,
	rateAheadKept:     nil,
	prefixHost: {{
		"LeaseReap", "else l.owner = any($1::text[])",
		`else exists (select from unnest($1::text[]) o where l.owner like regexp_replace(o, '-\d+-[0-9a-f]{8}$', '') || '-%')`,
	}},
	lockIgnored:         slices.Concat(unlocked, unfenced),
	cursorWithoutInsert: {{"ScheduleFire", "$4::timestamptz[]", "case when cardinality($4::timestamptz[]) > 1 then ($4::timestamptz[])[2:] else $4::timestamptz[] end"}},
	tickNotUnique: slices.Concat(unlocked, []change{
		{"ScheduleFire", "select coalesce(f.jobs", movedAnyhow + "select coalesce(f.jobs"},
		{"ScheduleFire", scheduleFire, "(select (select array_agg(jobq.schedule_job(m.schedule, t.at)) from moved m cross join unnest($4::timestamptz[]) as t(at))) as f(jobs)"},
	}),
	extendOldToken:   {{"LeaseExtend", extendFence, "x.id >= h.id and x.owner = $2"}},
	endOldToken:      anyToken("x.id = f.id and x.state is null and (select l.owner from jobq.lease l where l.id = x.lease_id limit 1) = $14"),
	progressOldToken: {{"RunProgress", progressFence, "$6::bigint is not null and $8::timestamptz is not null and x.state is null and (select l.owner from jobq.lease l where l.id = x.lease_id limit 1) = $7"}},
	checkpointOldToken: {
		{"RunCheckpoint", checkpointFence, "$3::bigint is not null and x.state is null and (select l.owner from jobq.lease l where l.id = x.lease_id limit 1) = $4"},
		{"RunCheckpoint", "l.owner = $4 and l.claimed_at = $5", "l.owner = $4 and $5::timestamptz is not null"},
	},
	lostLeaseEnds:   {{"LeaseEnd", "x.owner = $1 and x.lost_at is null\n          and not", "x.owner = $1\n          and not"}},
	recordedUnasked: {{"LeaseEnd", elsewhereOver, elsewhereAll}},
	begunIgnored: {
		{"LeaseReap", "j.slot <= s.begun as begun", "true as begun"},
		{"LeaseReap", "j.slot <= s.begun and s.lost_reason is null as counted", "s.lost_reason is null as counted"},
	},
	closeLocked:       {{"LeaseReap", "and (not l.runs or l.id = any(array(select d.id from done d)))", ""}},
	limitNotCounted:   {{"QueueAdmit", admitCall, admittedUncounted}},
	keyNotCounted:     {{"QueueAdmit", admitCall, admittedForgetful}},
	keyRateForgotten:  {{"QueueAdmit", admitCall, admittedUnrated}},
	limitCountedEarly: {{"QueueAdmit", admitCall, admittedEarly}},
	rateNotCharged:    {{"QueueCharge", "select jobq.queue_charge($1, $2::integer)", "select 1 where $1::text = '' and $2::integer < 0"}},
	endTwice:          {{"LeaseEnd", "\n          and not x.ended_slots && f.plain", ""}},
}

func active() string { return os.Getenv("JOBQ_MUTANT") }

// SetsApart says whether a worker fails jobs that no claim can read.
func SetsApart() bool { return active() != claimGivesUp }

// Polls says whether idle queues are polled.
func Polls() bool { return active() != noPolling }

// Rescues says whether janitors do overdue work without the lock.
func Rescues() bool { return active() != rescueNeedsLock }

// Adopts says whether a worker ends what is left of a program whose supervisor was killed.
func Adopts() bool { return active() != orphansLeft }

// LooksAfterBell says whether a worker looks, after a notification, for inserts that have left it to another one.
func LooksAfterBell() bool { return active() != bellTrusted }

// HoldsFrozen says whether a frozen run waits until its lease is extended.
func HoldsFrozen() bool { return active() != frozenGoesOn }

// IsPatient says whether a janitor leaves leases alone that could not be extended in an outage.
func IsPatient() bool { return active() != patienceNone }

// PatienceEnds says whether a janitor takes a lease that could not be extended in an outage when its owner
// has had the time.
func PatienceEnds() bool { return active() != patienceEndless }

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
		changed := wrapped(c.from).ReplaceAllLiteralString(query, c.to)
		if changed == query {
			panic(fmt.Sprintf("mutant %s finds no %q in %s", name, c.from, query))
		}
		query = changed
	}
	return query
}

// wrapped finds the text wherever its lines end.
func wrapped(text string) *regexp.Regexp {
	words := strings.Fields(text)
	for i, word := range words {
		words[i] = regexp.QuoteMeta(word)
	}
	return regexp.MustCompile(strings.Join(words, `\s+`))
}
