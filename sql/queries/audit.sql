-- JobAct requeues, cancels, deletes or edits jobs for an actor, and records it. A requeue locks unique
-- keys in (kind, key) order, and then the jobs in id order. An empty text in expected expects nothing.
-- name: JobAct :many
select a.audit::bigint as audit, a.job_id::bigint as job_id, coalesce(a.state_before, '')::text as state_before,
    coalesce(a.state_after, '')::text as state_after, a.changed::boolean as changed, coalesce(a.code, '')::text as code,
    coalesce(a.problem, '')::text as problem
  from jobq.act(sqlc.arg(actor), sqlc.arg(action), sqlc.arg(ids)::bigint[],
    (select array_agg(nullif(x.text, '') order by x.place)
        from unnest(sqlc.arg(expected)::text[]) with ordinality as x(text, place)),
    sqlc.arg(seen)::jsonb[], sqlc.narg(target)::text, sqlc.arg(audit_id)::bigint, sqlc.narg(change)::jsonb) a;

-- JobActDependents lets jobs wait again that were cancelled with a parent, for an actor, and records it: see
-- act_dependents. It locks unique keys in (kind, key) order, and then the jobs in id order.
-- name: JobActDependents :many
select a.audit::bigint as audit, a.job_id::bigint as job_id, coalesce(a.state_before, '')::text as state_before,
    coalesce(a.state_after, '')::text as state_after, a.changed::boolean as changed, coalesce(a.code, '')::text as code,
    coalesce(a.problem, '')::text as problem
  from jobq.act_dependents(sqlc.arg(actor)::text, sqlc.arg(ids)::bigint[], sqlc.arg(audit_id)::bigint) a;

-- JobClone adds a copy of another job. No row if there is no such job.
-- name: JobClone :one
select a.audit::bigint as audit, a.clone_id::bigint as id, a.clone_state::text as state
  from jobq.act_clone(sqlc.arg(actor)::text, sqlc.arg(job_id)::bigint, sqlc.arg(change)::jsonb) a;

-- WorkerDrain asks a worker to drain. It returns 0 if the worker drains already, and no row if
-- there is no such worker.
-- name: WorkerDrain :one
select d.audit::bigint as audit
  from jobq.act_drain(sqlc.arg(actor)::text, sqlc.arg(worker)::text) as d(audit)
  where d.audit is not null;

-- WorkerLost takes a worker's leases away for good. Its audit is 0 if there was nothing to do, and there is no row if
-- there is no such worker.
-- name: WorkerLost :one
select l.audit::bigint as audit, l.jobs::bigint as jobs, l.locked::bigint as locked
  from jobq.act_lost(sqlc.arg(actor)::text, sqlc.arg(worker)::text, sqlc.narg(note)::text) l;

-- HostAct holds a host or releases it, and records it. Its audit is 0 when there was nothing to do; workers is how many
-- workers the host has. Needs held_host_pkey.
-- name: HostAct :one
select coalesce(a.audit, 0)::bigint as audit, a.workers::bigint as workers
  from jobq.act_host(sqlc.arg(actor)::text, sqlc.arg(action)::text, sqlc.arg(host)::text, sqlc.narg(note)::text) a;

-- AuditUndo takes back an action on the next 1,000 of its jobs. A job that has changed since stays
-- as it is, and its row says why. ended says that there are no more jobs. An action that was not on
-- jobs has one row, with a job_id of 0. Locks unique keys in (kind, key) order, then the jobs in id
-- order.
-- name: AuditUndo :many
select a.audit::bigint as audit, coalesce(a.job_id, 0)::bigint as job_id,
    coalesce(a.state_before, '')::text as state_before,
    coalesce(a.state_after, '')::text as state_after, coalesce(a.code, '')::text as code,
    coalesce(a.problem, '')::text as problem, a.ended::boolean as ended
  from jobq.undo(sqlc.arg(actor), sqlc.arg(audit_id)::bigint) a;

-- QueueAct pauses or resumes a queue and records it. Its audit is 0 when there
-- was nothing to do.
-- name: QueueAct :one
select coalesce(a.audit, 0)::bigint as audit, a.known::boolean as known
  from jobq.act_queue(sqlc.arg(actor)::text, sqlc.arg(action)::text, sqlc.arg(queue)::text, sqlc.narg(note)::text) a;

-- KindAct pauses or resumes a kind and records it: 0 when there was nothing to do.
-- name: KindAct :one
select coalesce(jobq.act_kind(sqlc.arg(actor)::text, sqlc.arg(action)::text, sqlc.arg(kind)::text,
    sqlc.narg(note)::text), 0)::bigint as audit;

-- KeyAct pauses or resumes a partition key of a queue and records it. Its audit is 0 when there was
-- nothing to do. Needs paused_key_pkey and pending_claim_idx.
-- name: KeyAct :one
select coalesce(a.audit, 0)::bigint as audit, a.has_jobs::boolean as has_jobs
  from jobq.act_key(sqlc.arg(actor)::text, sqlc.arg(action)::text, sqlc.arg(queue)::text, sqlc.arg(key)::text,
      sqlc.narg(note)::text) a;

-- KeyWeightAct gives a partition key of a queue a weight and records it. Its audit is 0 when there was
-- nothing to do. Needs key_weight_pkey and pending_claim_idx.
-- name: KeyWeightAct :one
select coalesce(a.audit, 0)::bigint as audit, a.has_jobs::boolean as has_jobs
  from jobq.act_key_weight(sqlc.arg(actor)::text, sqlc.arg(queue)::text, sqlc.arg(key)::text, sqlc.arg(weight)::integer,
      null) a;

-- QueueKnown says whether a queue of that name is known (queue_known). Needs pending_claim_idx,
-- pending_due_idx, pending_held_idx, lease_queue_idx, stat_queue_idx and run_unsuccessful_idx.
-- name: QueueKnown :one
select jobq.queue_known(sqlc.arg(queue)::text)::boolean as known;

-- SettingSet changes the settings of the schema that are not null and records
-- it: 0 when there was nothing to do. An interval is stored in days, as people write it.
-- name: SettingSet :one
select coalesce(jobq.act_settings(sqlc.arg(actor)::text, justify_hours(sqlc.narg(finished_retention)::interval),
  sqlc.narg(quarantine_crashes)::integer, keep_until_exported => sqlc.narg(keep_until_exported)::boolean,
  exported_before => sqlc.narg(exported_before)::date,
  failed_retention => justify_hours(sqlc.narg(failed_retention)::interval)), 0)::bigint as audit;

-- QueueIs says whether a queue has these settings already: then there is nothing to set, and who may only read it
-- learns so. A queue without a row has the defaults. See QueueEnsure. Needs queue_pkey.
-- name: QueueIs :one
with was as (
  select coalesce((select q from jobq.queue q where q.name = sqlc.arg(queue)::text),
      jsonb_populate_record(null::jobq.queue, jsonb_build_object('lease', jobq.lease_default(), 'heartbeat', 'ticker',
        'stale_grace', '0', 'redelivery', 'tail', 'redelivery_delay', '0', 'reset_on_reap', false,
        'age_after', jobq.age_after_default()))) as settings
)
select (char_length(sqlc.arg(queue)::text) between 1 and 128
    and jobq.queue_changed(w.settings, sqlc.arg(change)::jsonb) is not distinct from w.settings)::boolean as same
  from was w;

-- QueueSet changes settings of a queue and records it: 0 when there was nothing to do.
-- name: QueueSet :one
select coalesce(jobq.act_queue_set(sqlc.arg(actor)::text, sqlc.arg(queue)::text, sqlc.arg(change)::jsonb),
    0)::bigint as audit;

-- KindIs says whether a kind has these settings already: see QueueIs. Needs kind_setting_pkey.
-- name: KindIs :one
select (jsonb_populate_record(w.settings, sqlc.arg(change)::jsonb) is not distinct from w.settings)::boolean as same
  from (
    select coalesce((select k from jobq.kind_setting k where k.name = sqlc.arg(kind)::text),
      jsonb_populate_record(null::jobq.kind_setting, '{}')) as settings
  ) w;

-- KindSet changes settings of a kind and records it: 0 when there was nothing to do.
-- name: KindSet :one
select coalesce(jobq.act_kind_set(sqlc.arg(actor)::text, sqlc.arg(kind)::text, sqlc.arg(change)::jsonb),
    0)::bigint as audit;

-- SettingGet is the settings of the schema.
-- name: SettingGet :one
select (extract(epoch from s.finished_retention) * 1000)::bigint as finished_retention_ms,
    s.quarantine_crashes::integer as quarantine_crashes,
    s.keep_until_exported, s.exported_before, coalesce(extract(epoch from s.failed_retention) * 1000,
        0)::bigint as failed_retention_ms
  from jobq.setting s;

-- AuditBegin records an action by filter before its first batch, with bounds for its jobs: jobs that
-- come later have higher ids, or end later. The bounds are those of a snapshot, if one is given,
-- otherwise of now.
-- name: AuditBegin :one
select jobq.audit_begin_many(sqlc.arg(actor)::text, sqlc.arg(action)::text, sqlc.narg(target)::text,
    sqlc.narg(change)::jsonb, sqlc.narg(snapshot_at)::timestamptz, sqlc.narg(id_max)::bigint,
        sqlc.narg(done_max)::integer)::bigint as id;

-- AuditSnapshot returns the bounds of an action by filter that begins now. If the role may not read
-- the sequence, id_max is the highest possible id, so a count with it is of all jobs. AuditBegin
-- then lowers the bound.
-- name: AuditSnapshot :one
select clock_timestamp()::timestamptz as at, coalesce(pg_sequence_last_value('jobq.job_id_seq'::regclass),
    9223372036854775807)::bigint as id_max;

-- AuditHold keeps others from working on an action by filter for the time of the lease, which each
-- call renews, or until AuditLetGo. Zero rows if somebody else works on it. An advisory lock would not
-- do: it belongs to the session, and a pooler may give each transaction another session. Needs
-- audit_pkey only.
-- name: AuditHold :execrows
update jobq.audit a
  set held_by = sqlc.arg(holder)::text, held_until = clock_timestamp() + sqlc.arg(lease)::interval
  where a.id = sqlc.arg(audit_id)
    and (a.held_by = sqlc.arg(holder)::text or a.held_until is null or a.held_until < clock_timestamp()
      or a.held_until > clock_timestamp() + 2 * sqlc.arg(lease)::interval); -- of a clock that was set back

-- AuditRenew is AuditHold for whoever has the action already. Zero rows if the lease has run out and
-- somebody else has worked on the action since. Needs audit_pkey only.
-- name: AuditRenew :execrows
update jobq.audit a
  set held_until = clock_timestamp() + sqlc.arg(lease)::interval
  where a.id = sqlc.arg(audit_id) and a.held_by = sqlc.arg(holder)::text;

-- AuditLetGo lets others work on the action. Needs audit_pkey only.
-- name: AuditLetGo :exec
update jobq.audit a set held_by = null, held_until = null
  where a.id = sqlc.arg(audit_id) and a.held_by = sqlc.arg(holder)::text;

-- AuditResume continues an action by filter that was stopped.
-- name: AuditResume :exec
select jobq.audit_resume(sqlc.arg(actor)::text, sqlc.arg(id)::bigint);

-- AuditEnd records that an action by filter is complete.
-- name: AuditEnd :exec
update jobq.audit a set ended_at = clock_timestamp() where a.id = sqlc.arg(id);

-- AuditGet is one action, with the ids of its first 20 jobs. Args of more than 1,000 bytes are "..." in
-- its change. Needs audit_pkey and audit_job_pkey.
-- name: AuditGet :one
select a.id, a.at, a.snapshot_at, a.id_max, a.id_done, a.undone_by, a.undoes, a.done, a.refused, a.done_max, a.actor,
    a.action, a.target, a.note, a.ended_at,
    (case when pg_column_size(a.change -> 'args') > 1000 then a.change || '{"args": "..."}'
        else a.change end)::jsonb as change,
    array(select t.job_id from jobq.audit_job t where t.audit_id = a.id order by t.job_id limit 20)::bigint[] as job_ids
  from jobq.audit a
  where a.id = sqlc.arg(id);

-- AuditList is a page of actions as AuditGet has them, newest first.
-- Needs audit_pkey and audit_job_pkey.
-- name: AuditList :many
select a.id, a.at, a.snapshot_at, a.id_max, a.id_done, a.undone_by, a.undoes, a.done, a.refused, a.done_max, a.actor,
    a.action, a.target, a.note, a.ended_at,
    (case when pg_column_size(a.change -> 'args') > 1000 then a.change || '{"args": "..."}'
        else a.change end)::jsonb as change,
    array(select t.job_id from jobq.audit_job t where t.audit_id = a.id order by t.job_id limit 20)::bigint[] as job_ids
  from jobq.audit a
  where a.id < sqlc.arg(before)
  order by a.id desc
  limit sqlc.arg(page_size)::integer;

-- AuditOfJob is what people did to one job, oldest first. The job's rows come
-- first (MATERIALIZED): joined at once, without statistics, the planner may ask for
-- the job in each action. Needs audit_job_job_id_idx and audit_pkey.
-- name: AuditOfJob :many
with entry as materialized (
  select t.audit_id, t.state_before, t.state_after
    from jobq.audit_job t
    where t.job_id = sqlc.arg(job_id)
    order by t.audit_id
    limit 100
)
select a.id, a.at, a.actor, a.action, e.state_before, e.state_after
  from entry e
  cross join lateral (
    -- the limit keeps it a lookup
    select x.id, x.at, x.actor, x.action from jobq.audit x where x.id = e.audit_id limit 1
  ) a
  order by a.id;

-- AuditPrune deletes old actions, about row_count rows, and returns how many rows it has deleted:
-- fewer if nothing is left. It goes on after the given action and job, which the call before has
-- returned. Needs audit_at_idx and audit_job_pkey.
-- name: AuditPrune :one
select p.deleted::bigint as deleted, coalesce(p.last_audit, 0)::bigint as last_audit,
    coalesce(p.last_job, 0)::bigint as last_job
  from jobq.audit_prune(sqlc.arg(after_audit)::bigint, sqlc.arg(after_job)::bigint, sqlc.arg(row_count)::integer) p;
