package db

import (
	"slices"
	"strings"
	"time"
)

// Stage is where jobs of some states are, and what their columns are called there:
// j is the job's row, and lease, where there is one, the lease that it has or had.
type Stage struct {
	// The fields that filters ask for and that are not the same everywhere.
	ID, Queue, Since, Worker, Args, Scheduled string
	// Finished is when the job was over; "" where no job is.
	Finished string

	due, state, token, started, reported, cleared string
	checkpoint, result                            string // "" for none
	startedKey                                    string // what jobs are sorted by for their start; "" where none runs
	from, counted                                 string // where the rows are, and where those that are only counted, if j is not asked for
	beside, lease                                 string // what is looked up for each: with it, or when the page is found
	conditions                                    []string
	since, before                                 string // conditions that follow from having ended since, or before, {moment}
	needsOpen                                     bool
}

// argsOf is the args of a job, which are kept apart when they are large.
const argsOf = "coalesce(j.args, (select a.args from jobq.payload a where a.job_id = j.id))"

// runDue is when a job could run, of a row of run: see the column.
const runDue = "coalesce(j.run_at, j.created_at)"

// openJobs are the jobs that run, from the leases that are held: few rows, in
// memory. A job that has just ended on its own row may be among them, until its
// lease says so, too: lists look at the row, counts do not. What was claimed ahead
// and has not begun has notBegun for its start, which sorts after all others.
const openJobs = `with open as materialized (
  select s.job_id, x.id as lease_id, case when s.slot <= x.begun then x.claimed_at else '` + notBegun + `' end as started, x.expires_at, x.owner, x.queue
    from jobq.lease x
    cross join lateral unnest(x.job_ids) with ordinality as s(job_id, slot)
    where s.slot <> all (x.ended_slots)
)
`

// notBegun is the start of what has not begun, where jobs are sorted by it. NotBegun is the same.
const notBegun = "9999-12-31 23:59:59+00"

// NotBegun is where jobs that have not begun are in a list that is sorted by their start.
func NotBegun() time.Time { return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC) }

// isOver says of a row of run without a state that it is over, by what runs, so
// that no past lease needs to be looked at. Few rows are younger than the oldest
// lease that is held; only they ask further, in a hash. It stays one: the
// planner expects few rows of unnest, and many of leases, which it might not hash.
const isOver = `(j.lease_id < (select min(o.lease_id) from open o) or (j.id, j.lease_id) not in (
        select u.job_id, u.lease_id
          from (select array_agg(o.job_id) as job_ids, array_agg(o.lease_id) as lease_ids from open o) a
          cross join lateral unnest(a.job_ids, a.lease_ids) as u(job_id, lease_id)))`

// leaseOfRun looks the lease of a row of run up. The limit keeps the planner from
// hashing all leases for some jobs. Neighbours mostly have the same lease, which
// the planner may remember (Memoize), as long as the join stays an outer one: see Worker in over.
const leaseOfRun = `
    left join lateral (
      select x.claimed_at, x.owner, null::smallint[] as ended, x.ended_slots, x.ended_ms
        from jobq.lease x where x.id = j.lease_id
      union all
      select x.claimed_at, x.owner, x.ended, null, null
        from jobq.past_lease x where x.id = j.lease_id
      limit 1
    ) lease on true`

// endedAt is when a run was over. As an argument of coalesce it keeps the join an outer one.
const endedAt = `coalesce(j.finished_at, lease.claimed_at
        + coalesce(lease.ended[j.slot], lease.ended_ms[array_position(lease.ended_slots, j.slot)]) * interval '1 ms')`

// Conditions that follow from having ended since, or before, a {moment}: the day
// of its claim is in the id of a lease. A minute is for runs that plainly
// succeeded, which are shorter, and for clocks.
const (
	claimedSince  = "j.lease_id >= jobq.lease_day((({moment} - interval '1 minute') at time zone 'UTC')::date)"
	claimedBefore = "j.lease_id < jobq.lease_day((({moment} + interval '1 minute') at time zone 'UTC')::date + 1)"
)

// maxLostOf is the max_lost of a job: its own, or after the first loss that of its queue, as in the view job.
const maxLostOf = `coalesce(j.max_lost, case when j.lost > 0
        then (select q.max_lost from jobq.queue q where q.name = j.queue) end, 0)::smallint`

// columns are those of JobGetRow, with or without args, checkpoint and result.
func (s Stage) columns(withValues bool) string {
	finished := s.Finished
	if finished == "" {
		finished = "null::timestamptz"
	}
	value := func(sql string) string {
		if sql == "" || !withValues {
			return "null::jsonb"
		}
		return "jobq.json_shown(" + sql + ")"
	}
	return `j.id, ` + s.state + ` as state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.crashes, ` + s.token + ` as lease_token,
        ` + s.due + ` as run_at, j.created_at, ` + s.started + ` as started_at, ` + finished + ` as finished_at, ` + s.reported + `,
        coalesce(ceil(extract(epoch from j.timeout) * 1000), 0)::bigint, j.unique_key, j.last_error, ` + s.cleared + `, j.tags, jobq.json_shown(j.metadata) as metadata,
        ` + value(s.Args) + ", " + value(s.checkpoint) + ", " + value(s.result) + `, coalesce(j.partition_key, ''),
        coalesce(j.lost, 0)::smallint as lost, ` + maxLostOf + ` as max_lost`
}

// pendingOf are the conditions on jobs in pending of these states. Each of the states
// alone has an index.
var pendingOf = map[string][]string{
	"waiting scheduled available": nil,
	"scheduled available":         {"j.waits is null"},
	"waiting available":           {"(j.waits or j.position is not null)"},
	"waiting scheduled":           {"j.position is null"},
	"waiting":                     {"j.waits"},
	"scheduled":                   {"j.position is null", "j.waits is null"},
	"available":                   {"j.position is not null"},
}

// stages are those that jobs of the page's states can be in.
func (p JobPage) stages() (stages []Stage) {
	wanted := func(states ...string) []string {
		return slices.DeleteFunc(states, func(state string) bool { return !slices.Contains(p.States, state) })
	}
	if conditions, some := pendingOf[strings.Join(wanted("waiting", "scheduled", "available"), " ")]; some {
		stages = append(stages, pending(conditions...))
	}
	if len(wanted("running")) > 0 {
		stages = append(stages, running())
	}
	completed, unsuccessful := len(wanted("completed")) > 0, wanted("failed", "cancelled")
	switch {
	case completed && p.EndedWithin == 0:
		stages = append(stages, ended(unsuccessful))
	case completed:
		// Each with the index, or the days, that the moment leaves.
		stages = append(stages, endedWithLease(), p.endedOnOwnRow("completed"))
	}
	if len(unsuccessful) > 0 && (!completed || p.EndedWithin > 0) {
		stages = append(stages, p.endedOnOwnRow(unsuccessful...))
	}
	return stages
}

// pendingJobs is where the jobs are that wait.
const pendingJobs = "jobq.pending j"

func pending(conditions ...string) Stage {
	return Stage{
		ID: "j.id", Queue: "j.queue", Since: "j.created_at", Worker: "null::text", Args: argsOf, Scheduled: "(j.position is null and j.waits is null)",
		due: "j.run_at", state: "case when j.waits then 'waiting' when j.position is null then 'scheduled' else 'available' end", token: "j.lease_token",
		started: "null::timestamptz", cleared: "j.clear_reason", checkpoint: "j.checkpoint",
		reported: "null::text, null::timestamptz, null::timestamptz, null::timestamptz, null::real, null::text, null::text",
		from:     pendingJobs, conditions: conditions,
	}
}

// running finds jobs from their leases, and so in the {order} of the page, and what
// a filter asks of the lease, without a look at run.
func running() Stage {
	return Stage{
		ID: "lease.job_id", Queue: "lease.queue", Since: "j.created_at", Worker: "lease.owner", Args: argsOf, Scheduled: "false",
		due: runDue, state: "'running'", token: "j.lease_id", started: "nullif(lease.started, '" + notBegun + "')", startedKey: "lease.started", cleared: "j.clear_reason",
		checkpoint: "coalesce(progress.checkpoint, j.checkpoint)",
		reported: `lease.owner, lease.expires_at, j.cancel_requested_at, progress.progressed_at, progress.percent,
        progress.stage, progress.message`,
		from: `(select o.* from open o order by {order}) lease
    cross join lateral (
      select x.* from jobq.run x where x.id = lease.job_id and x.lease_id = lease.lease_id and x.state is null limit 1
    ) j`,
		counted: "open lease",
		beside: `
    left join lateral (
      select x.progressed_at, x.percent, x.stage, x.message, x.checkpoint
        from jobq.progress x where x.job_id = j.id and x.lease_id = j.lease_id limit 1
    ) progress on true`,
		needsOpen: true,
	}
}

// over is what the stages of jobs that are over have in common.
func over(state, finished string, conditions ...string) Stage {
	return Stage{
		// An owner is never empty. The function keeps the join an outer one.
		ID: "j.id", Queue: "j.queue", Since: finished, Worker: "nullif(lease.owner, '')", Args: argsOf, Scheduled: "false", Finished: finished,
		due: runDue, state: state, token: "j.lease_id", started: "coalesce(j.began_at, lease.claimed_at)", cleared: "null::text",
		checkpoint: "j.checkpoint", result: "j.result",
		reported: "lease.owner, null::timestamptz, null::timestamptz, null::timestamptz, null::real, null::text, null::text",
		from:     "jobq.run j", lease: leaseOfRun, conditions: conditions, before: claimedBefore,
	}
}

// ended are the jobs that completed, and those that ended in the other states.
func ended(others []string) Stage {
	own := "j.state is not null"
	if len(others) < 2 {
		own = isOneOf(append(others, "completed"))
	}
	stage := over("coalesce(j.state::text, 'completed')", endedAt,
		"("+own+" or (j.state is null and "+isOver+"))")
	stage.needsOpen = true
	return stage
}

// endedWithLease are the jobs that plainly succeeded.
func endedWithLease() Stage {
	stage := over("'completed'", endedAt, "j.state is null", isOver)
	stage.needsOpen, stage.since = true, claimedSince
	return stage
}

// endedOnOwnRow are the jobs whose row of run says that they are over. States
// are constants: the planner must see that they are not 'completed', or that
// they are, to use a partial index.
func (p JobPage) endedOnOwnRow(states ...string) Stage {
	stage := over("j.state::text", "j.finished_at", isOneOf(states))
	stage.since = "j.finished_at >= {moment}"
	if p.Sort == SortFinished {
		// Left alone, the planner expects too few rows, as most have neither a state nor
		// a finished_at, and would sort them all.
		stage.Since, stage.since = "(j.finished_at + interval '0')", "j.finished_at >= (select {moment})"
	}
	return stage
}

func isOneOf(states []string) string { return "j.state in ('" + strings.Join(states, "', '") + "')" }
