package tests

import (
	"strings"

	"github.com/jobq-dev/jobq/internal/db"
)

// historyCase is a statement with arguments, and how many buffers it may look
// at, whatever there is in the tables.
type historyCase struct {
	name, sql, args string
	buffers         int
	before          string // a statement that makes it something to do
}

// limitedQueue gives a queue all limits, and makes its throttle's row the youngest of many.
const limitedQueue = `with q as (
    insert into jobq.queue (name, max_running, rate_jobs, rate_period) values ('q1', 1000000, 100, '1 s')
      on conflict (name) do update set max_running = 1000000, rate_jobs = 100, rate_period = '1 s'
  )
  insert into jobq.throttle (queue, number, step_us, ready_at) select 'q1', i, 10000, now() from generate_series(1, 5000) i`

// exhaustedQueue is limitedQueue, with its limits reached and the kind of its jobs paused.
const exhaustedQueue = `with q as (
    insert into jobq.queue (name, max_running, rate_jobs, rate_period) values ('q1', 1, 1, '1 h')
      on conflict (name) do update set max_running = 1, rate_jobs = 1, rate_period = '1 h'
  ), k as (
    insert into jobq.kind (name, paused_at) select 'k' || i, now() from generate_series(0, 99) i
  )
  insert into jobq.throttle (queue, number, step_us, ready_at) select 'q1', i, 3600000000, now() + interval '1 h' from generate_series(1, 5000) i`

// manyKeys gives a queue jobs of many keys, all of which are full but for ten, and lets a claim have its turn.
const manyKeys = `with q as (
    insert into jobq.queue (name, key_limit) values ('keys', 1)
  ), l as (
    insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids) select 1, now(), now() + interval '1 h', 'w', 'keys', array_agg(i) from generate_series(1, 20000) i
  ), known as (
    insert into jobq.lane (queue, key) values ('keys', '')
  ), full_lane as (
    insert into jobq.lane (queue, key, full_limit, looked_at, held_leases, held_slots) select 'keys', 'full ' || i, 1, now(), '{1}', array[i]::smallint[] from generate_series(1, 20000) i
  ), ready as (
    insert into jobq.lane (queue, key, turn) select 'keys', 'ready ' || i, nextval('jobq.lane_turn_seq') from generate_series(1, 10) i
  ), hint as (
    insert into jobq.lane_hint (queue, key) select 'other', 'key ' || i from generate_series(1, 20000) i
  ), turn as (
    select set_config('jobq_claim.admitted', '100', true)
  )
  insert into jobq.pending (id, kind, queue, partition_key) select 5100000 + i, 'k', 'keys', case when i % 1000 = 0 then 'ready ' || i / 1000 else 'full ' || 1 + i % 100 end from turn, generate_series(1, 10000) i`

// manyTurns gives a queue very many keys that have their turns, and behind them one with a job.
const manyTurns = `with w as (
    insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('turns', 1, 'h', 'v', '{"turns": 10}', '{k}', '{}')
  ), ready as (
    insert into jobq.lane (queue, key, turn) select 'turns', 'ready ' || i, i from generate_series(1, 20000) i union all select 'turns', 'last', 1000000
  )
  insert into jobq.pending (id, kind, queue, partition_key) values (8000001, 'k', 'turns', 'last')`

// manyNewKeys gives a queue almost as many keys of new jobs as are looked at, with one job.
const manyNewKeys = `with w as (
    insert into jobq.worker (id, pid, hostname, version, queues, kinds, kind_slots) values ('turns', 1, 'h', 'v', '{"turns": 10}', '{k}', '{}')
  ), hint as (
    insert into jobq.lane_hint (queue, key) select 'turns', 'new ' || i from generate_series(1, 9900) i
  )
  insert into jobq.pending (id, kind, queue, partition_key) values (8000001, 'k', 'turns', 'last')`

// manyHeads gives two queues keys whose jobs run in order, and of which nobody has heard for long.
const manyHeads = `with q as (
    insert into jobq.queue (name, key_limit, key_order) values ('keys', 1, 'hold'), ('stops', 1, 'stop')
  ), other as (
    insert into jobq.lane (queue, key) select 'other', 'key ' || i from generate_series(1, 20000) i
  )
  insert into jobq.lane_head (queue, key, job_id, lease_id)
    select q.name, 'key ' || i, 1000000000 + i, jobq.lease_day((now() at time zone 'UTC')::date) + i from (values ('keys'), ('stops')) q(name), generate_series(1, 20000) i`

// manyHeld gives a queue more keys than are looked at, whose heads wait for their retries but for the last one.
const manyHeld = manyHeads + `;
  insert into jobq.pending (id, kind, queue, partition_key) select 5100000 + i, 'k', 'stops', 'key ' || i from generate_series(1, 5000) i;
  insert into jobq.pending (id, kind, queue, partition_key, position, run_at) select 1000000000 + i, 'k', 'stops', 'key ' || i, null, now() + interval '1 day' from generate_series(1, 4999) i`

// manyKeptKeys has many keys of jobs that are over, all of which were kept until the same moment, many that are to be kept for
// longer, and one of a job that waits.
const manyKeptKeys = `with kept as (
    insert into jobq.unique_key (kind, key, job_id, kept_until, job_over)
      select 'k', 'key ' || i, i, now() - interval '1 h', true from generate_series(1, 20000) i
      union all select 'k', 'later ' || i, 100000 + i, now() + interval '1 h', true from generate_series(1, 20000) i
  )
  insert into jobq.pending (id, kind, unique_key) values (5100000, 'k', 'w1')`

// keptKeyOfEnded is manyKeptKeys, where a job that has failed has one of these keys.
const keptKeyOfEnded = manyKeptKeys + `;
  update jobq.run set kind = 'k', unique_key = 'later 7' where id = 20000100`

// manyActions adds actions to the audit, to which nothing was done.
const manyActions = `insert into jobq.audit (at, actor, action, done) select now(), 'ann', 'edit', 0 from generate_series(1, 50000)`

// heldJobs follows manyHeads: a job of each key waits behind its head.
const heldJobs = `;
  insert into jobq.pending (id, kind, queue, partition_key) select 5100000 + i, 'k', 'stops', 'key ' || i from generate_series(1, 20000) i`

// manyUnlimited gives a queue without a limit jobs of many keys.
const manyUnlimited = `insert into jobq.pending (id, kind, queue, partition_key) select 5100000 + i, 'k', 'q1', 'key ' || i from generate_series(1, 20000) i`

// manyRetrying adds jobs that have failed, some of them in the line and some that were requeued since.
const manyRetrying = `insert into jobq.pending (id, kind, queue, position, last_error, attempts, run_at)
  select 5100000 + i, 'k', 'q1', case when i % 3 = 0 then 5100000 + i end, 'e ' || i % 10, i % 2, now() from generate_series(1, 20000) i`

// manySuspects adds jobs that were lost with their workers: some are due, and others wait for that.
const manySuspects = `insert into jobq.pending (id, kind, queue, partition_key, last_error, attempts, crashes, run_at)
  select 5100000 + i, 'k' || i % 3, 'q' || i % 2, case when i % 2 = 0 then 'key ' || i else '' end, 'e ' || i % 10, 2, 2, now() + (i % 3 - 1) * interval '1 hour' from generate_series(1, 2000) i;
  update jobq.queue set key_limit = 1 where name = 'q0'`

// chosenJobs says that a claim has chosen a hundred jobs.
const chosenJobs = "select set_config('jobq_claim.places', array(select p.ctid from jobq.pending p where p.position is not null order by p.id limit 100)::text, true)"

// awaitedByMany has 7 wait for a few jobs, and 8 for twenty thousand; and awaitedByNone
// has all of them die.
const (
	awaitedByMany = `with w as (
    insert into jobq.waiter (id, expires_at) values (7, now() + interval '30 s'), (8, now() + interval '30 s')
  )
  insert into jobq.awaited (job_id, waiter_id) select i, 7 from generate_series(1, 10) i union all select 1000 * i, 8 from generate_series(1, 20000) i`
	awaitedByNone = `with w as (
    insert into jobq.waiter (id, expires_at) values (7, now() - interval '30 s')
  )
  insert into jobq.awaited (job_id, waiter_id) select 1000 * i, 7 from generate_series(1, 20000) i`
)

// manyPriorities adds aged jobs of many priorities to a queue.
const manyPriorities = `insert into jobq.pending (kind, queue, priority, run_at, created_at)
  select 'k1', 'q1', i, now() - interval '1 h', now() - interval '1 h' from generate_series(1, 150) i`

// longerForFailed has days looked through for what is kept for less long.
const longerForFailed = "update jobq.setting set failed_retention = '30 days'"

// choresFound are arguments of ChoresFind that make it ask for all that it knows.
const choresFound = `'{roll up stats,shorten leases,remove dead workers,tell of full notifications,analyze history,prune output,prune waiters,wake jobs of events}', '5 minutes', 0`

// historyCases are the statements of the janitor, the worker, the UI and the
// CLI. Their bounds are some times what they need, and small beside any table.
func historyCases() []historyCase {
	const few, batch, inHand = 300, 6_000, 3_000
	const settled = 4_000 // 50 jobs move; the other children of the parent would be 1,000 and more at each look at them
	return []historyCase{
		// The janitor.
		{"JobPromote", db.JobPromote, "'-infinity', 0, 1000", inHand, ""},
		{"NextDue", db.NextDue, "'', 0, 10000, 10000, true, '{}', '-infinity', '-infinity'", few, ""},
		{"NextDue of an idle janitor", db.NextDue, "'j', 40000, 10000, 10000, true, '{}', '-infinity', '-infinity'", few, ""},
		{"DependencyStep of a parent", db.DependencyStep, "'-infinity', 50", 2 * settled, "insert into jobq.dependency_look (job_id) values (20000100)"},
		{"DependencyStep that cancels", db.DependencyStep, "'-infinity', 50", settled, "with d as (update jobq.dependency set on_failure = 'cancel' where parent = 20000100 and child <= 6000050) insert into jobq.dependency_look (job_id) values (20000100)"},
		{"DependencyStep of undone ones", db.DependencyStep, "'-infinity', 50", 2 * batch, "insert into jobq.dependency_look (job_id) select 6000002 + i from generate_series(0, 49) i"},
		{"DependencyStep of new ones", db.DependencyStep, "'-infinity', 50", 3 * batch, "insert into jobq.dependency_look (job_id, is_new) select 40000026 + i, true from generate_series(0, 99) i"},
		{"DependencyPrune", db.DependencyPrune, "0, 0, 0, 100", batch, ""},
		{"DueFirst", db.DueFirst, "", few, ""},
		{"DueNext", db.DueNext, "'-infinity', 0", few, ""},
		{"LeaseReap", db.LeaseReap, "null, '{}', null, 100, '{}', 'janitor'", inHand, ""},
		{"LeaseStale", db.LeaseStale, "'{}', 100", inHand, ""},
		{"LeasePatience", db.LeasePatience, "array[now() - interval '1 hour'], array[now()], 1000", inHand, ""},
		{"LeaseShorten", db.LeaseShorten, "", inHand, ""},
		{"LeaseJobs", db.LeaseJobs, "live_lease(0)", few, ""},
		{"StatRollUp", db.StatRollUp, "1000", batch, ""},
		{"StatPrune", db.StatPrune, "'-infinity', '30 days', 500", inHand, ""},
		{"EventPrune", db.EventPrune, "'-infinity', '7 days', 500", inHand, ""},
		{"ScheduleFirst", db.ScheduleFirst, "", few, ""},
		{"ScheduleLook", db.ScheduleLook, "'-infinity', ''", few, ""},
		{"ScheduleFire", db.ScheduleFire, "'s1', 1, '2026-01-01', '{2026-01-02}', '2026-01-03', '2026-01-04'", inHand, ""},
		{"ScheduleFire with a job before", db.ScheduleFire, "'s2', 1, '2026-01-01', '{2026-01-02}', '2026-01-03', '2026-01-04'", inHand, "update jobq.schedule set overlap = 'skip', last_job_id = 20000004 where name = 's2'"},
		{"ScheduleFail", db.ScheduleFail, "'wrong', '1 s', 's1', 1", few, ""},
		{"ScheduleRewind", db.ScheduleRewind, "", few, ""}, // all schedules, of which there are few
		{"ScheduleTickPrune", db.ScheduleTickPrune, "'-infinity', '7 days', 500", inHand, ""},
		{"UniqueKeyPrune", db.UniqueKeyPrune, "'-infinity', 0, 500", 2 * inHand, manyKeptKeys},
		{"UniqueKeyPrune of the last", db.UniqueKeyPrune, "now() - interval '1 h', 19500, 500", inHand, manyKeptKeys},
		{"AuditPrune", db.AuditPrune, "0, 0, 500", batch, ""},
		{"PartitionAdd", db.PartitionAdd, "'run', 5", batch, ""}, // catalogs, for the indexes and constraints of a table
		{"PartitionAdd of leases", db.PartitionAdd, "'past_lease', 5", batch, ""},
		{"PartitionPrune", db.PartitionPrune, "'run'", batch, ""},
		{"PartitionPrune of leases", db.PartitionPrune, "'past_lease'", batch, ""},
		{"PayloadPrune", db.PayloadPrune, "'', 0, 1000, 500", batch, "select jobq.partition_prune('run')"},
		{"DefaultPrune", db.DefaultPrune, "'run', 0, 0, 1000", inHand, ""},
		{"DefaultPrune of leases", db.DefaultPrune, "'past_lease', 0, 0, 1000", inHand, ""},
		{"DefaultPrune of attempts", db.DefaultPrune, "'attempt', 0, 0, 1000", inHand, ""},
		{"HistorySweep that begins", db.HistorySweep, "16, 1000", inHand, longerForFailed},
		{"HistorySweep of blocks", db.HistorySweep, "16, 1000", 8 * batch, longerForFailed + "; insert into jobq.sweep (day, began_at, next_block, last_lease) select (now() at time zone 'UTC')::date - 9, now(), 0, 1::bigint << 60"},
		{"HistorySweep of leases", db.HistorySweep, "16, 1000", 2 * batch, longerForFailed + "; insert into jobq.sweep (day, began_at, next_lease, last_lease) select (now() at time zone 'UTC')::date - 9, now(), 0, 1::bigint << 60"},
		{"KindsCrashed", db.KindsCrashed, "'{k}', array[now()], '{w1}', 'janitor'", inHand, "insert into jobq.kind (name, crashes, crashed_at) values ('k', 3, now() - interval '20 hours')"},
		{"ChoresFind", db.ChoresFind, choresFound, inHand, ""},
		{"WorkerPrune", db.WorkerPrune, "'5 minutes'", few, ""},
		// The worker.
		{"JobEnqueue", db.JobEnqueue, "'k', '{}', 'q1', 0, null, '1 hour', 25, null, null, null, null, null, '', 0", few, ""},
		{"JobEnqueue with a partition key", db.JobEnqueue, "'k', '{}', 'q1', 0, null, null, 25, null, null, null, null, null, 'a', 0", few, ""},
		{"enqueue that replaces another", "select jobq.enqueue('k', unique_key => $1, uniqueness => '{\"on_conflict\": \"replace\"}')", "'w1'", inHand, manyKeptKeys},
		{"enqueue with a key that was kept for a time", "select jobq.enqueue('k', unique_key => $1, uniqueness => '{\"for\": \"1 h\"}')", "'key 7'", inHand, manyKeptKeys},
		{"enqueue of one that waits", "select jobq.enqueue('k', after => $1)", "'{40000026,20000104}'", inHand, ""},
		{"ParentList", db.ParentList, "6000001, 40000030, 100", batch, ""},
		{"DependentList of one with many children", db.DependentList, "'{20000100,20000200}', 6000100, 100", batch, ""},
		{"GraphList of one with many parents", db.GraphList, "6000001", 50_000, ""}, // looks at 1,000 jobs, in each day of the history
		{"GraphList of one with many children", db.GraphList, "20000100", 50_000, ""},
		{"RunHold", db.RunHold, "40000026, live_lease(0), 'w0', claimed_at(live_lease(0))", few, ""},
		{"RunHeld", db.RunHeld, "'{40000026,20000100}', array[live_lease(0), 1], array[claimed_at(live_lease(0)), now()], 'w0'", few, ""},
		{"RunProgress", db.RunProgress, "0.5, 's', 'm', '1 hour', 40000026, live_lease(0), 'w0', claimed_at(live_lease(0))", few, ""},
		{"RunCheckpoint", db.RunCheckpoint, "'{}', 40000026, live_lease(0), 'w0', claimed_at(live_lease(0)), null", few, ""},
		{"RunCompleteTx", db.RunCompleteTx, "null, 40000026, live_lease(0), 'w0', claimed_at(live_lease(0))", few, ""},
		{"RunFate", db.RunFate, "40000026, live_lease(0), 'w0', claimed_at(live_lease(0)), true", few, ""},
		{"RunFate of one that is over", db.RunFate, "20000100, jobq.lease_day((now() at time zone 'UTC')::date - 7) + 200001, 'w1', claimed_at(jobq.lease_day((now() at time zone 'UTC')::date - 7) + 200001), true", few, ""},
		{"AttemptKeep", db.AttemptKeep, "claimed_at(live_lease(0)), 1000, 'x', null, 40000026, live_lease(0), 'w0'", few, ""},
		{"complete", "select jobq.complete($1, $2)", "40000026, run_token(live_lease(0))", inHand, ""},
		{"fail", "select jobq.fail($1, $2, 'e')", "40000026, run_token(live_lease(0))", inHand, ""},
		{"snooze", "select jobq.snooze($1, $2, '1 h')", "40000026, run_token(live_lease(0))", inHand, ""},
		{"progress", "select jobq.progress($1, $2, 1)", "40000026, run_token(live_lease(0))", inHand, ""},
		{"checkpoint", "select jobq.checkpoint($1, $2, '1')", "40000026, run_token(live_lease(0))", inHand, ""},
		{"StepGet of one that is done", db.StepGet, "40000026, run_token(live_lease(0)), 'step 17'", inHand, ""},
		{"StepGet of a new one", db.StepGet, "40000026, run_token(live_lease(0)), 'new'", inHand, ""},
		{"StepPut", db.StepPut, "40000026, run_token(live_lease(0)), 'new', '1'", inHand, ""},
		{"StepSleep", db.StepSleep, "40000026, run_token(live_lease(0)), 'new', '1 h'", inHand, ""},
		{"StepWait", db.StepWait, "40000026, run_token(live_lease(0)), 'new', '1 h'", inHand, ""},
		{"StepWait for one that has come", db.StepWait, "40000026, run_token(live_lease(0)), 'e17', '1 h'", inHand, ""},
		{"StepAwait of jobs that run", db.StepAwait, "40000026, run_token(live_lease(0)), 'new', '{40000027, 40000028, 40000029, 40000030, 40000031, 40000032, 40000033, 40000034, 40000035, 40000036}'", batch, ""},
		{"StepAwait of jobs that are over", db.StepAwait, "40000026, run_token(live_lease(0)), 'new', '{20000100, 20000101, 20000102, 20000103, 20000104, 20000105, 20000106, 20000107, 20000108, 20000109}'", batch, ""},
		{"StepAwait of jobs that are gone", db.StepAwait, "40000026, run_token(live_lease(0)), 'new', '{3, 4, 5, 6, 7, 8, 9, 10, 11, 12}'", batch, ""},
		{"EventEmit that nobody waits for", db.EventEmit, "'new', '1'", inHand, ""},
		{"EventEmit that ten jobs wait for", db.EventEmit, "'w17', '1'", inHand, ""},
		{"EventWakeRest", db.EventWakeRest, "100", inHand, "update jobq.emitted set name = 'w17', woken_to = 0 where name = 'e17'"},
		{"EventWakeRest of none", db.EventWakeRest, "100", few, ""},
		{"StepPrune", db.StepPrune, "0, '', 500", batch, ""},
		{"StepPrune of the last", db.StepPrune, "40000026, 'step 999', 500", few, ""},
		{"EmittedPrune", db.EmittedPrune, "'-infinity', '', 500", inHand, ""},
		{"QueueAdmit", db.QueueAdmit, "'q1', 100, 100, true, false", few, limitedQueue},
		{"QueueCharge", db.QueueCharge, "'q1', 1", few, limitedQueue},
		{"LaneClaim", db.LaneClaim, "'keys', '{k}', 'w', '1 min', false, true, 0, 0, false, 10", batch, manyKeys},
		{"LaneTake", db.LaneTake, "'1 min', 10, 'w', 'q1'", batch, chosenJobs},
		{"UnreadableSetApart", db.UnreadableSetApart, "'q1', '', -2147483648, 0, 100", 10 * batch, ""},
		{"JobClaimAlone", db.JobClaimAlone, "'q1', '{k0,k1,k2}', 'w', '1 min'", inHand, ""},
		{"SuspectNext", db.SuspectNext, "'{q0,q1,none}', '{k0,k1,k2}'", inHand, ""},
		{"LanePrune", db.LanePrune, "'', '', 0, 100", 2 * inHand, manyKeys},
		{"LanePrune of hints", db.LanePrune, "'keys', '', 0, 100", batch, manyKeys},
		{"LanePrune of jobs", db.LanePrune, "'keys', 'ready 1', 0, 100", inHand, manyKeys},
		{"LaneHeadPrune", db.LaneHeadPrune, "'keys', 'key 100', 100", batch, manyHeads},
		{"LaneHeadPrune of failures", db.LaneHeadPrune, "'stops', 'key 100', 100", batch, manyHeads},
		{"LaneHintsAdd", db.LaneHintsAdd, "'keys', '{a,b}', true", few, ""},
		{"LineAged", db.LineAged, "'{k0,k1,k2}', '{q0,q1,q2}'", inHand, manyPriorities},
		{"LeaseLook", db.LeaseLook, "array[live_lease(0), live_lease(1)], array[claimed_at(live_lease(0)), claimed_at(live_lease(1))], 'w0'", few, ""},
		{"LeaseUnanswered", db.LeaseUnanswered, "jobq.lease_day((now() at time zone 'UTC')::date), 'w0', array[live_lease(0), live_lease(1)], 100", inHand, ""},
		{"LeaseCancelled", db.LeaseCancelled, "array[live_lease(0), live_lease(1)]", few, ""},
		{"OutputAppend", db.OutputAppend, "1000000000, 1000000001, 'x', 40000026, live_lease(0), 'w0', claimed_at(live_lease(0)), 1000", inHand, ""},
		{"ProgressPrune", db.ProgressPrune, "500", inHand, ""},
		{"OutputPrune", db.OutputPrune, "'-infinity', 500", batch, ""},
		{"DigestRead", db.DigestRead, "'{1,2,3}'", few, ""},
		{"WorkWaits", db.WorkWaits, "true, '{k1}', '{none,due}'", few, ""},
		{"WorkWaits of one", db.WorkWaits, "true, '{k}', '{none,due}'", few, ""},
		{"WorkWaits where keys are held", db.WorkWaits, "true, '{k}', '{stops}'", 4 * batch, manyHeld},
		{"WorkWaits while a job is to be looked at", db.WorkWaits, "true, '{other}', '{none,due}'", inHand, "insert into jobq.dependency_look (job_id) values (20000100)"},
		{"WorkerBeat", db.WorkerBeat, "'1 minute', '{k1}', 'w1', 'h', '{q0,q2}', '{q0,q2}', 30, '{q0,q2}', 1, null, 13, false, true, true, null, null, 'v', '{}', '{}', '{}', '{}', '{}'", 1_000, ""},
		{"WorkerOutcomes", db.WorkerOutcomes, "'{k1}', '{1000}', 'w1', '1 minute'", 1_000, ""},
		{"UnreadableSince", db.UnreadableSince, "20000100, 'k1', 'w1', '1 minute', 'q1', 'k1'", inHand, ""},
		{"WorkerEarlier", db.WorkerEarlier, "'1 minute', 'w1', null", few, ""},
		{"RunKey", db.RunKey, "", few, ""},
		{"LeaseOwners", db.LeaseOwners, "'w1'", few, ""},
		// The UI and the CLI.
		{"QueueList", db.QueueList, "1000", 4 * batch, ""},
		{"KeyList of many full keys", db.KeyList, "10000, 'keys', 1000, '', 100", batch, manyKeys},
		{"KeyList behind many keys", db.KeyList, "10000, 'keys', 1000, 'full 5', 100", 2 * batch, manyKeys},
		{"KeyList of an order", db.KeyList, "10000, 'stops', 1000, '', 100", 3 * batch, manyHeads + heldJobs},
		{"KeyList without a limit", db.KeyList, "10000, 'q1', 1000, '', 100", 10 * batch, manyUnlimited}, // all that runs of the queue
		{"StatsByQueue", db.StatsByQueue, "'1 hour'", inHand, ""},
		{"StatsByMinute", db.StatsByMinute, "'1 hour'", inHand, ""},
		{"StatsByKindMinute", db.StatsByKindMinute, "'1 hour'", inHand, ""},
		{"FailuresByError", db.FailuresByError, "'', 100, '1 day', 500, '', ''", inHand, ""},
		{"FailuresByError of one group", db.FailuresByError, "'0a1b2c3d', 100, '90 days', 500, 'q1', 'k'", inHand, ""},
		{"FailuresByError of all cancelled", db.FailuresByError, "'', 100, '1 day', 500, '', ''", inHand, "update jobq.run set state = 'cancelled' where finished_at > now() - interval '1 day' and state <> 'completed'"},
		{"FailuresByError of many that are to be tried again", db.FailuresByError, "'', 100, '1 day', 500, '', ''", inHand, manyRetrying},
		{"RunsSilent", db.RunsSilent, "20, '1 hour', '1 hour', '1 hour', 3, 1000", inHand, ""},
		{"RunsSilent of all that run", db.RunsSilent, "20, '1 hour', '1 hour', '10 minutes', 3, 1000", 10 * batch, "update jobq.lease set claimed_at = now() - interval '2 hours'"},
		{"DoctorWaiting", db.DoctorWaiting, "200, '1 minute'", 2 * batch, ""},
		{"DoctorOverdue", db.DoctorOverdue, "1000", inHand, ""},
		{"DoctorErrors", db.DoctorErrors, "'1 hour', 10000", inHand, ""},
		{"DoctorDefaults", db.DoctorDefaults, "", few, ""},
		{"DoctorPaused", db.DoctorPaused, "'1 day'", few, ""},
		{"DoctorHeld", db.DoctorHeld, "'1 minute', '1 day'", few, ""},
		{"DoctorTroubles", db.DoctorTroubles, "'1 minute'", few, ""},
		{"DoctorWorkers", db.DoctorWorkers, "'1 minute'", few, ""},
		{"DoctorUnattended", db.DoctorUnattended, "'1 minute'", few, ""},
		{"DoctorConnections", db.DoctorConnections, "'1 minute'", few, ""},
		{"SessionFacts", db.SessionFacts, "", few, ""},
		{"WorkerList", db.WorkerList, "", few, ""},
		{"HeldHostList", db.HeldHostList, "1000", few, ""},
		{"EventList", db.EventList, "9223372036854775807, 20", few, ""},
		{"AuditList", db.AuditList, "9223372036854775807, 100", inHand, ""},
		{"AuditGet", db.AuditGet, "100", few, ""},
		{"AuditOfJob", db.AuditOfJob, "20010001", few, ""},
		{"JobGet", db.JobGet, "20000004", few, ""},
		{"JobGet of a running job", db.JobGet, "40000026", few, ""},
		{"WhyList of the last in the line", db.WhyList, "last_in_line()", 2 * batch, ""}, // counts 10,000 before it
		{"WhyList of the first in the line of a queue at its limits", db.WhyList, "1", 2 * few, exhaustedQueue},
		{"WhyList of the first in the line, of a kind with slots of its own", db.WhyList, "1", 2 * few, `update jobq.worker set heartbeat_at = now(), kind_slots = '{"k1": 1}'; update jobq.lease set queue = 'q1'`},
		{"WhyList of a job of a full key", db.WhyList, "of_full_key()", inHand, manyKeys},
		{"WhyList of a job behind many keys", db.WhyList, "8000001", few, manyTurns},
		{"WhyList of a job of one of many new keys", db.WhyList, "8000001", batch, manyNewKeys},
		{"WhyList of a scheduled job", db.WhyList, "10000017", inHand, ""},
		{"WhyList of a job that waits for others", db.WhyList, "6000001", inHand, ""},
		{"WhyList of one that waits for an event, of many steps", db.WhyList, "10000018", inHand, `insert into jobq.step (job_id, started_at, finished_at, lease_token, claimed_at, number, type, name, result)
			select 10000018, now(), now(), 0, now(), i + 1, 'step', 'step ' || i, '1' from generate_series(1, 9000) i`},
		{"WhyList of a running job", db.WhyList, "40000026", few, ""},
		{"WhyList of one that failed", db.WhyList, "20000100", few, ""},
		{"WhyList of one that failed, beside many keys", db.WhyList, "20000100", few, keptKeyOfEnded},
		{"WhyList of one that plainly succeeded", db.WhyList, "20000104", few, ""},
		{"WhyList of no job", db.WhyList, "5000000", few, ""},
		{"EndRead of a job in each state and of none", db.EndRead, "'{17,40000026,20000100,20000104,5000000}', 100", few, ""},
		{"EndRead of those that plainly succeeded", db.EndRead, "'{" + strings.TrimSuffix(strings.Repeat("20000104,20000304,20000504,20000704,20000904,", 20), ",") + "}', 100", batch, ""},
		{"Await", db.Await, "7, '{17,40000026}', '{5,6}', '30 s'", few, awaitedByMany},
		{"Await of one that has to clean up", db.Await, "8, '{17,40000026}', '{5,6}', '30 s'", 2 * batch, awaitedByNone},
		{"WaitersForget", db.WaitersForget, "", 2 * batch, awaitedByNone},
		{"AwaitEnd", db.AwaitEnd, "7", inHand, awaitedByMany},
		{"waiters_wake of jobs that nobody waits for", "select jobq.waiters_wake(array(select generate_series($1::bigint, $1::bigint + 499)))", "10000001", few, awaitedByMany},
		{"waiters_wake of jobs with others that are waited for", "select jobq.waiters_wake(array(select generate_series($1::bigint, $1::bigint + 499)))", "1", inHand, awaitedByMany},
		{"parents_ended of jobs that nobody waits for", "select jobq.parents_ended(array(select generate_series($1::bigint, $1::bigint + 499)))", "10000001", few, ""},
		{"parents_ended of a few beside one that many have waited for", "select jobq.parents_ended(array[$1, 20000060])", "20000040", few, ""},
		{"parents_ended of many beside one that many have waited for", "select jobq.parents_ended(array(select generate_series($1::bigint, $1::bigint + 98, 2)))", "20000001", few, ""},
		{"the end of a job on its row", "update jobq.run set state = 'completed', finished_at = now() where id = $1", "40000026", few, ""},
		{"result", "select r.state from jobq.result($1) r", "20000104", few, ""},
		{"AttemptList", db.AttemptList, "20000004, 1000", few, ""},
		{"StepList", db.StepList, "4096, 20000004, 1000", few, ""},
		{"StepList of the last ones of many", db.StepList, "4096, 40000026, 100", 60, ""}, // not all 9,000
		{"JobActFromStep", db.JobActFromStep, "'w17', 'ann', 10000017, ''", inHand, ""},
		{"OutputSince", db.OutputSince, "40000026, live_lease(0), 0", few, ""},
		{"JobCancel", db.JobCancel, "17", inHand, ""},
		{"JobCancel of a running job", db.JobCancel, "40000026", inHand, ""},
		{"JobRequeue", db.JobRequeue, "20000004", inHand, ""},
		{"JobRequeue of a scheduled job", db.JobRequeue, "10000017", inHand, ""},
		{"JobOfUniqueKey", db.JobOfUniqueKey, "'k', 'key 17'", few, `insert into jobq.unique_key (kind, key, job_id) select 'k', 'key ' || i, i from generate_series(1, 20000) i`},
		{"requeue", "select jobq.requeue($1)", "20000100", inHand, ""},
		{"requeue of one that plainly succeeded", "select jobq.requeue($1)", "20000104", inHand, ""},
		{"keys given back beside many", "select jobq.unique_keys_release($1, $2, $3)", "'{k,k}', '{key 7,later 7}', '{7,100007}'", few, manyKeptKeys},
		{"undo_job beside many actions", "select jobq.undo_job('edit', t) from jobq.audit_job t where t.audit_id = $1 and t.job_id = $2", "200, 20020001", few, manyActions},
		{"delete_job", "select jobq.delete_job($1)", "20000100", inHand, ""},
		{"delete_job of one that plainly succeeded", "select jobq.delete_job($1)", "20000104", inHand, ""},
		{"JobActDependents", db.JobActDependents, "'ann', '{20000100,20000200}', 0", inHand, "update jobq.run set state = 'cancelled', slot = 0, last_error = 'job 40000026, for which it waited, has failed' where id in (20000100, 20000200)"},
		{"JobAct", db.JobAct, "'ann', 'requeue', '{20000100,20000200}', '{}', '{}', null, 0, null", inHand, ""},
		{"JobClone", db.JobClone, "'ann', 20000100, '{}'", inHand, ""},
		{"AuditUndo", db.AuditUndo, "'ann', 200", 5 * batch, ""}, // of a hundred jobs,
		{"AuditBegin", db.AuditBegin, "'ann', 'cancel', 'id:>0', null, null, null, null", few, ""},
		{"QueueAct", db.QueueAct, "'ann', 'pause', 'q1', null", inHand, ""},
		{"QueueAct on an unknown queue", db.QueueAct, "'ann', 'pause', 'none', null", inHand, ""},
		{"KindList", db.KindList, "1000, '1 hour'", inHand, ""},
		{"KindAct", db.KindAct, "'ann', 'kind_pause', 'k', null", few, ""},
		{"KindAct of a resume", db.KindAct, "'ann', 'kind_resume', 'k', null", few, "insert into jobq.kind (name, paused_at) values ('k', now())"},
		{"KeyAct", db.KeyAct, "'ann', 'key_pause', 'q1', 'a', null", inHand, ""},
		{"KeyAct of a resume", db.KeyAct, "'ann', 'key_resume', 'q1', 'a', null", inHand, "insert into jobq.paused_key (queue, key, paused_at, paused_by) values ('q1', 'a', now(), 'ann')"},
		{"KeyWeightAct", db.KeyWeightAct, "'ann', 'q1', 'a', 3", inHand, ""},
		{"KeyWeightList", db.KeyWeightList, "'{a,b}', 'q1'", few, ""},
		{"QueueServed", db.QueueServed, "'{k1,none}', 'q1'", 15_000, ""}, // 10,000 sums of the queue
		{"QueueServed of none", db.QueueServed, "'{k1,none}', 'none'", batch, ""},
		{"QueueKnown of one in use", db.QueueKnown, "'q1'", few, ""},
		{"QueueKnown of one that ended long ago", db.QueueKnown, "'monthly'", inHand, "insert into jobq.stat select now() - interval '29 days', 1, 1, 1, 0, 0, 0, 0, 'monthly', 'k'"},
		{"QueueKnown of no queue", db.QueueKnown, "'none'", inHand, ""},
		{"ScheduleList", db.ScheduleList, "1000, '', 100", few, ""},
		{"ScheduleTickList", db.ScheduleTickList, "'s1', 20", inHand, ""},
		{"ScheduleSet", db.ScheduleSet, "'s1', 'other', '@daily', null, '', null, '', 0, 0, null, null, null, null, null, 'key', '', 0, null, '', '', 'ann'", few, ""},
		{"ExportJobs", db.ExportJobs, "(now() at time zone 'UTC')::date - 5, 20000000, 100", batch, ""},
		{"ExportAttempts", db.ExportAttempts, "(now() at time zone 'UTC')::date - 5, 20000000, 0, '-infinity', 500", batch, ""},
		{"ExportNext", db.ExportNext, "", inHand, ""},
		{"ExportBegin", db.ExportBegin, "(now() at time zone 'UTC')::date - 7", inHand, "delete from jobq.lease"},
		{"ExportEnd", db.ExportEnd, "'ann', jobq.export_first(), '2026-11-01', 1, 1", inHand, "update jobq.setting set export_day = jobq.export_first(), export_began_at = '2026-11-01'"},
		{"WorkerDrain", db.WorkerDrain, "'ann', 'w1'", inHand, ""},
		{"WorkerLost", db.WorkerLost, "'ann', 'w1', 'gone'", inHand, ""},
		{"HostAct", db.HostAct, "'ann', 'host_hold', 'h', 'bad disk'", inHand, ""},
		{"HostAct of a release", db.HostAct, "'ann', 'host_release', 'h', null", inHand, "insert into jobq.held_host (host, held_by) values ('h', 'ann')"},
		// Last, since dead index entries stay when the suspects are rolled back.
		{"DueFirst beside suspects", db.DueFirst, "", inHand, manySuspects},
		{"JobPromote beside suspects", db.JobPromote, "'-infinity', 0, 1000", 2 * inHand, manySuspects},
		{"JobClaimAlone of many", db.JobClaimAlone, "'q1', '{k0,k1,k2}', 'w', '1 min'", inHand, manySuspects},
		{"JobClaimAlone of many keys", db.JobClaimAlone, "'q0', '{k0,k1,k2}', 'w', '1 min'", inHand, manySuspects},
		{"SuspectNext of many", db.SuspectNext, "'{q0,q1,none}', '{k0,k1,k2}'", inHand, manySuspects},
	}
}
