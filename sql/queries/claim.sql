-- JobClaim moves up to job_count available jobs of one queue to run, under one new lease for the
-- owner, and returns them. It takes them in the order of priority and position, but returns the rows
-- in any order, so the caller sorts.
--
-- Example: the queue holds these jobs, and a worker asks for two; another transaction has locked job
-- 12.
--
--   id  priority  position
--   11         0         5    taken: of the same priority as 14, and after it
--   12         0         3    skipped, since it is locked
--   13         1         1    not taken: the lower priority goes first
--   14         0         4    taken
--
-- It deletes 11 and 14 from pending, inserts lease 900 with job_ids {11,14}, and inserts run 11 with
-- slot 1 and run 14 with slot 2, both of lease 900. The worker's next claim asks for what comes after
-- (0, 5), and finds 13. If job 12 is unlocked, its place is before that: a claim that looks at the
-- whole line finds it.
--
-- The candidates are locked first (MATERIALIZED, so that the limit holds), and deleted by ctid, which
-- needs no second look at an index. A row that was edited after the statement's snapshot and before
-- the lock has a new ctid, so this claim does not take it; a later one that looks at the whole line
-- does. Rows that other claims have locked are skipped, and never waited for.
--
-- It reads the line in segments: from (from_priorities, from_positions), exclusive, to the end of
-- to_priorities. One segment can be the whole line. Several segments leave out what was claimed
-- before: otherwise each claim would read its dead index entries again, for as long as any transaction
-- is open.
--
-- With pass_locked it does not try to lock a row that another transaction seems to have locked: one
-- whose xmax, the last transaction that locked, changed or deleted it, had not ended when the
-- statement began. To try such a row costs an entry for it in the server's table of locks, and a request
-- for the lock of that transaction. All claims that meet rows of one transaction request the same lock,
-- and wait for each other: without this, eight workers on 16 cores waited half of the time, and ran half
-- as many jobs (docs/decisions/0030-passing-locked-rows.md). An xmax can also be the number of a
-- multixact, which may look like a transaction that runs. So claims of the whole line, and those that
-- begin with aged priorities, try all rows.
--
-- It takes nothing from a queue with a limit or a rate, unless admitted says that queue_admit came
-- before in the same transaction. Then it takes as many jobs as that has said.
--
-- The place of an id in job_ids is the slot of its run, in the order in which the worker begins them. The
-- first begin_count begin at once, and the first begin_ahead soon: so many may have begun if none would
-- fail when its run is lost. LeaseEnd says when the others may. The paused kinds are read once. Needs
-- pending_claim_idx and kind_paused_idx, whatever the statistics say.
--
-- With lease_per_job, each job has a lease of its own. That is for queues whose jobs extend their own leases with what
-- they report.
-- name: JobClaim :many
with candidate as materialized (
  select c.place
    from rows from (unnest(sqlc.arg(from_priorities)::integer[]), unnest(sqlc.arg(from_positions)::bigint[]),
        unnest(sqlc.arg(to_priorities)::integer[])) as s(from_priority, from_position, to_priority)
    cross join lateral (
      select p.ctid as place
        from jobq.pending p
        where p.queue = sqlc.arg(queue) and p.partition_key = '' and p.position is not null
          and p.kind = any(sqlc.arg(kinds)::text[])
          and (p.priority, p.position) > (s.from_priority, s.from_position) and p.priority <= s.to_priority
          and not exists (select from jobq.queue q where q.name = sqlc.arg(queue)
            and (q.paused_at is not null or not sqlc.arg(admitted)::boolean
                and (q.max_running is not null or q.rate_jobs is not null)))
          and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
          and (not sqlc.arg(pass_locked)::boolean or p.xmax = '0'::xid
              or age(p.xmax) > (select age(pg_snapshot_xmax(pg_current_snapshot())::xid))
            and p.xmax <> all(array(select x::xid from pg_snapshot_xip(pg_current_snapshot()) x)))
        order by p.priority, p.position
        limit case when sqlc.arg(admitted)::boolean
            then coalesce(nullif(current_setting('jobq_claim.admitted', true), '')::integer, 0)
            else sqlc.arg(job_count)::integer end
        for update of p skip locked
    ) c
    limit case when sqlc.arg(admitted)::boolean
        then coalesce(nullif(current_setting('jobq_claim.admitted', true), '')::integer, 0)
        else sqlc.arg(job_count)::integer end
), taken as (
  delete from jobq.pending p
    where p.ctid = any(array(select c.place from candidate c))
    returning (p).*
), moment as materialized (
  select clock_timestamp() as at
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, job_ids)
    select jobq.lease_id_next(), m.at, m.at + sqlc.arg(lease)::interval,
        case when t.some_last then sqlc.arg(begin_count)::smallint
            else sqlc.arg(begin_ahead)::smallint end, sqlc.arg(owner), sqlc.arg(queue), t.ids
      from (
        select array_agg(t.id
            order by t.priority, t.position) as ids,
            bool_or(t.attempts + 1 >= t.max_attempts or t.lost > 0) as some_last
          from taken t
          group by case when sqlc.arg(lease_per_job)::boolean then t.id end
      ) t
      cross join moment m
    returning id, job_ids
)
insert into jobq.run as r
  select (n).*
    from taken t
    -- unnest beside, not in FROM: else the planner may go through all jobs for each lease
    join (select l.id as lease_id, unnest(l.job_ids) as job_id,
        generate_subscripts(l.job_ids, 1)::smallint as slot from l) s
      on s.job_id = t.id
    cross join lateral jobq.run_of(row(t.*)::jobq.pending, s.lease_id, s.slot) n
  returning r.id, r.lease_id as lease_token, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes,
    r.queue, r.kind, r.created_at, coalesce(r.run_at, r.created_at)::timestamptz as run_at, (select m.at
        from moment m)::timestamptz as started_at,
    coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint as timeout_ms,
    coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb as args,
    r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, (r.unique_key is not null)::boolean as has_key,
    coalesce(r.lost, 0)::smallint as lost;

-- QueueAdmit says how many jobs of a queue with limits the next JobClaim of the transaction may take
-- (queue_admit).
-- name: QueueAdmit :many
select a.admitted::integer as admitted, a.blocked::text as blocked, a.wait_ms::bigint as wait_ms
  from jobq.queue_admit(sqlc.arg(queue), sqlc.arg(job_count)::integer, sqlc.arg(slots_free)::integer,
      sqlc.arg(patient)::boolean, sqlc.arg(sharing)::boolean) a;

-- QueueCharge comes after that JobClaim (queue_charge).
-- name: QueueCharge :exec
select jobq.queue_charge(sqlc.arg(queue), sqlc.arg(ended)::integer);

-- LaneClaim comes after QueueAdmit and before JobClaim, if the queue has jobs with partition keys
-- (lane_claim).
-- name: LaneClaim :many
select c.id::bigint as id, c.lease_token::bigint as lease_token, c.slot::smallint as slot,
    c.position::bigint as position, c.priority::smallint as priority,
    c.attempts::smallint as attempts, c.max_attempts::smallint as max_attempts, c.crashes::smallint as crashes,
    c.queue::text as queue,
    c.kind::text as kind, c.created_at::timestamptz as created_at, c.run_at::timestamptz as run_at,
    c.started_at::timestamptz as started_at,
    c.timeout_ms::bigint as timeout_ms, c.args::jsonb as args, c.checkpoint::jsonb as checkpoint,
    c.metadata::jsonb as metadata,
    c.tags::text[] as tags, c.last_error::text as last_error, c.clear_reason::text as clear_reason,
    c.has_key::boolean as has_key, coalesce(c.lost, 0)::smallint as lost,
    c.partition_key::text as partition_key
  from jobq.lane_claim(sqlc.arg(queue), sqlc.arg(kinds)::text[], sqlc.arg(owner), sqlc.arg(lease)::interval,
    sqlc.arg(lease_per_job)::boolean, sqlc.arg(with_plain)::boolean,
    sqlc.arg(from_turn)::bigint, sqlc.arg(to_turn)::bigint, sqlc.arg(again)::boolean,
    sqlc.arg(begin_count)::smallint) c;

-- LaneTake comes after LaneClaim, if that has chosen and locked jobs of keys without a limit. It moves
-- them to run, as JobClaim does. Their keys take turns: a1 b1 a2 b2 a3, as in the worker's takeTurns.
-- name: LaneTake :many
with taken as (
  delete from jobq.pending p
    where p.ctid = any(coalesce(nullif(current_setting('jobq_claim.places', true), ''), '{}')::tid[])
    returning (p).*
), l as (
  insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, job_ids)
    select jobq.lease_id_next(), clock_timestamp(), clock_timestamp() + sqlc.arg(lease)::interval,
        sqlc.arg(begin_count)::smallint, sqlc.arg(owner), sqlc.arg(queue), t.ids
      from (
        select array_agg(t.id order by t.round, t.priority, t.position) as ids
          from (select t.id::bigint as id, t.priority::smallint as priority, t.position::bigint as position,
              row_number() over (partition by t.partition_key
              order by t.priority, t.position) as round
            from taken t) t
          having count(*) > 0
      ) t
    returning id, claimed_at, job_ids
)
insert into jobq.run as r
  select (n).*
    from taken t
    -- unnest beside, not in FROM: else the planner may go through all jobs for each lease
    join (select l.id as lease_id, unnest(l.job_ids) as job_id,
        generate_subscripts(l.job_ids, 1)::smallint as slot from l) s
      on s.job_id = t.id
    cross join lateral jobq.run_of(row(t.*)::jobq.pending, s.lease_id, s.slot) n
  returning r.id, r.lease_id as lease_token, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes,
    r.queue, r.kind, r.created_at, coalesce(r.run_at, r.created_at)::timestamptz as run_at, (select l.claimed_at
        from l limit 1)::timestamptz as started_at,
    coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint as timeout_ms,
    coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id))::jsonb as args,
    r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, (r.unique_key is not null)::boolean as has_key,
    coalesce(r.lost, 0)::smallint as lost, r.partition_key;

-- LaneMore reports on the LaneClaim before it in the same transaction: whether another one would find
-- more, what to give the next one so that the pass goes on, whether the queue has a limit or a rate of
-- its keys, as far as is known, and in how many milliseconds the next throttled key may start a job
-- (0: none is known).
-- name: LaneMore :many
select (l.said[1] = 1)::boolean as more, l.said[2]::bigint as from_turn, l.said[3]::bigint as to_turn,
    (l.said[4] = 1)::boolean as again,
    (l.said[5] = 1)::boolean as has_key_limit, coalesce(l.said[6], 0)::bigint as wait_ms
  from (select coalesce(nullif(current_setting('jobq_claim.lanes', true), ''), '{0,0,0,0,1}')::bigint[] as said) l;

-- JobClaimAlone claims a suspect for a worker that runs nothing else (claim_alone).
-- name: JobClaimAlone :many
select c.id::bigint as id, c.lease_token::bigint as lease_token, c.slot::smallint as slot,
    c.position::bigint as position, c.priority::smallint as priority,
    c.attempts::smallint as attempts, c.max_attempts::smallint as max_attempts, c.crashes::smallint as crashes,
    c.queue::text as queue,
    c.kind::text as kind, c.created_at::timestamptz as created_at, c.run_at::timestamptz as run_at,
    c.started_at::timestamptz as started_at,
    c.timeout_ms::bigint as timeout_ms, c.args::jsonb as args, c.checkpoint::jsonb as checkpoint,
    c.metadata::jsonb as metadata,
    c.tags::text[] as tags, c.last_error::text as last_error, c.clear_reason::text as clear_reason,
    c.has_key::boolean as has_key, coalesce(c.lost, 0)::smallint as lost,
    c.partition_key::text as partition_key
  from jobq.claim_alone(sqlc.arg(queue), sqlc.arg(kinds)::text[], sqlc.arg(owner), sqlc.arg(lease)::interval) c;

-- SuspectNext is the suspect that is due first in each of these queues, and in how many milliseconds
-- (suspect_next).
-- name: SuspectNext :many
select n.name::text as queue, s.id::bigint as id, s.kind::text as kind, s.due_ms::bigint as due_ms
  from unnest(sqlc.arg(queue_names)::text[]) as n(name)
  cross join lateral jobq.suspect_next(n.name, sqlc.arg(kinds)::text[]) s;

-- LaneHintsAdd comes with ends of jobs that have partition keys (lane_hints_add).
-- name: LaneHintsAdd :exec
select jobq.lane_hints_add(sqlc.arg(queue), sqlc.arg(keys)::text[], sqlc.arg(to_wake)::boolean);

-- LanePrune removes hints and lanes of one queue that nobody claims from (lane_prune). Each call goes
-- on where the answer before it has ended. Both texts are empty for the first call, and last_queue is
-- empty after the last queue.
-- name: LanePrune :one
select coalesce(p.last_queue, '')::text as last_queue, p.last_key::text as last_key, p.last_hint::bigint as last_hint
  from jobq.lane_prune(sqlc.arg(after_queue)::text, sqlc.arg(after_key)::text, sqlc.arg(after_hint)::bigint,
      sqlc.arg(row_count)::integer) p;

-- LaneHeadPrune deletes the notes of which jobs of partition keys were claimed last (lane_head_prune).
-- Each call goes on where the answer before it has ended. Both texts are empty for the first call, and
-- last_queue is empty after the last one.
-- name: LaneHeadPrune :one
select coalesce(p.last_queue, '')::text as last_queue, coalesce(p.last_key, '')::text as last_key
  from jobq.lane_head_prune(sqlc.arg(after_queue)::text, sqlc.arg(after_key)::text, sqlc.arg(row_count)::integer) p;
