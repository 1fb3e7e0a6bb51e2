-- Six roles, and what each may do. Run it as the owner of the schema, after each `jobq migrate up`; it changes nothing
-- twice. The first time it makes the roles: the owner must be a superuser or have CREATEROLE, or a superuser runs it.
--
--   psql "$DATABASE_URL" -f sql/roles.sql
--
-- It does all or nothing: at the first error it stops, and psql exits with 3. Another program than psql does not know
-- the line with a backslash: leave it out there.
-- The roles are groups without a login: `create role web login in role jobq_producer`.
-- With another schema than jobq, quoted because its name may have a hyphen:
-- `sed 's/\bjobq\b/"NAME"/g' sql/roles.sql | psql …`.
\set ON_ERROR_STOP on
begin;

do $$
declare
  roles constant text[] := '{jobq_producer, jobq_web, jobq_runner, jobq_worker, jobq_viewer, jobq_admin}';
  owner name := (select pg_get_userbyid(c.relowner) from pg_class c
    where c.relnamespace = to_regnamespace('jobq') and c.relname = 'pending');
  missing text[] := array(select r.name from unnest(roles) as r(name)
    where not exists (select from pg_roles p where p.rolname = r.name));
  name text;
begin
  if owner is null then
    raise exception 'there are no tables in schema jobq'
      using hint = 'Run "migrate up" first. For another schema, the head of this file says how to name it.';
  end if;
  if not pg_has_role(owner, 'usage') then
    raise exception 'role % does not own schema jobq', current_user
      using hint = format('Its tables belong to %I: run this file as %1$I, or as a superuser.', owner);
  end if;
  if missing <> '{}' and not (select r.rolsuper or r.rolcreaterole from pg_roles r where r.rolname = current_user) then
    raise exception 'role % may not make roles, and these are missing: %', current_user, array_to_string(missing, ', ')
      using hint = format('Let a superuser run this file, or first: alter role %I createrole;', current_user);
  end if;
  foreach name in array missing loop
    execute format('create role %I nologin', name);
  end loop;
end $$;

grant usage on schema jobq to jobq_producer, jobq_web, jobq_worker, jobq_viewer, jobq_admin;
-- Every client looks which version the tables have, what the limit on args is, and
-- what the defaults are: an insert evaluates them in the name of who makes it.
grant execute on function jobq.args_bytes_max, jobq.has_months, jobq.age_after_default, jobq.lease_default,
    jobq.max_attempts_default to jobq_producer, jobq_worker, jobq_viewer, jobq_admin;
grant select on jobq.jobq_migration to jobq_producer, jobq_worker, jobq_viewer, jobq_admin;

-- A producer adds jobs and reads nothing, not even its own: no args of others,
-- and no lease, attempt or place in the line of its own making.
grant insert (kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags,
    metadata, partition_key, max_lost)
  on jobq.pending to jobq_producer, jobq_worker, jobq_admin;
grant usage on sequence jobq.job_id_seq, jobq.position_seq to jobq_producer, jobq_worker, jobq_admin;
grant select on sequence jobq.waiting_seq to jobq_producer, jobq_worker; -- is somebody to be woken?
grant execute on function
  jobq.enqueue(text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], jsonb,
    bigint[], text, text, jsonb, bigint),
  jobq.enqueue(text, json, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], json,
    bigint[], text, text, json, bigint),
  jobq.enqueue(text, text, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], text,
    bigint[], text, text, text, bigint),
  jobq.enqueue_arrays, jobq.enqueue_many(jsonb), jobq.enqueue_many(json), jobq.enqueue_many(text)
  to jobq_producer, jobq_worker, jobq_admin;

-- Whoever may add jobs may say what has happened, for jobs that wait for it.
grant execute on function jobq.emit to jobq_producer, jobq_worker, jobq_admin;

-- A web application adds jobs, and cancels and sees those that its own login has added. It can do only that: with
-- enqueue, or an insert, it could say that a job is another's.
grant execute on function jobq.own_enqueue, jobq.own_cancel, jobq.own_job to jobq_web;

-- A runner is for programs that end their own jobs (docs/transactional-completion.md), and can do only
-- that: it sees no job, and a call needs the token of the run.
grant usage on schema jobq to jobq_runner;
grant execute on function jobq.complete, jobq.fail, jobq.snooze, jobq.progress, jobq.checkpoint to jobq_runner;
grant execute on function jobq.step_get, jobq.step_put, jobq.step_sleep, jobq.step_wait, jobq.step_await to jobq_runner,
    jobq_worker;

-- A viewer reads everything, args too, and says that it watches.
grant select on
  jobq.pending, jobq.run, jobq.lease, jobq.past_lease, jobq.progress, jobq.attempt, jobq.payload, jobq.unique_key,
  jobq.output, jobq.queue, jobq.throttle, jobq.lane, jobq.lane_head, jobq.lane_hint, jobq.paused_key,
  jobq.key_weight, jobq.key_group, jobq.kind, jobq.kind_setting, jobq.worker, jobq.held_host, jobq.janitor_seen,
  jobq.event, jobq.setting, jobq.sweep, jobq.stat, jobq.stat_delta, jobq.audit, jobq.audit_job, jobq.watcher,
  jobq.digest, jobq.schedule, jobq.schedule_tick, jobq.job, jobq.stats, jobq.job_id_seq, jobq.position_seq,
  jobq.lease_number_seq, jobq.lease_day_seq, jobq.waiting_seq, jobq.waiter, jobq.awaited, jobq.awaited_seq,
  jobq.step, jobq.emitted, jobq.dependency, jobq.dependency_look
  to jobq_viewer, jobq_admin;
-- jobq doctor looks whether they have rows
grant select on jobq.run_default, jobq.past_lease_default, jobq.attempt_default to jobq_viewer, jobq_admin;
grant execute on function jobq.channel, jobq.json_shown to jobq_viewer, jobq_worker, jobq_admin;
grant execute on function jobq.watch, jobq.watch_end to jobq_viewer, jobq_admin;
grant execute on function jobq.queue_known, jobq.export_first, jobq.retention_span, jobq.kept_for to jobq_viewer,
    jobq_admin;
-- Who waits for a job to end reads how it did, and says that it waits.
grant execute on function jobq.run_end, jobq.result, jobq.await, jobq.await_end to jobq_viewer, jobq_worker, jobq_admin;
grant select on sequence jobq.awaited_seq to jobq_worker; -- is somebody to be woken?
grant execute on function jobq.waiters_wake to jobq_worker, jobq_admin;
grant execute on function jobq.waiters_forget to jobq_worker; -- the janitor's
grant select on jobq.waiter to jobq_worker; -- has one expired?
grant select (name, woken_to) on jobq.emitted to jobq_worker; -- do jobs of an event still sleep?
grant execute on function
  jobq.why, jobq.why_session, jobq.why_row_locked, jobq.why_table_locked, jobq.why_janitor, jobq.why_before,
  jobq.why_first, jobq.why_kind, jobq.why_oldest, jobq.why_key_runs, jobq.why_turn,
  jobq.lane_next, jobq.lane_failed, jobq.why_stopped, jobq.why_workers, jobq.why_served, jobq.why_rate,
  jobq.why_key_limits, jobq.why_limits, jobq.why_waiting, jobq.why_missing, jobq.why_parents, jobq.why_scheduled,
  jobq.why_running, jobq.why_ended, jobq.why_cancelled, jobq.why_lost, jobq.parent_named, jobq.why_suspended
  to jobq_viewer, jobq_admin;
-- a worker lists queues as well, to compare its file with them
grant execute on function jobq.key_held, jobq.line_last, jobq.line_head, jobq.line_heads_in_turn, jobq.line_heads
    to jobq_viewer, jobq_admin, jobq_worker;
-- a filter may ask for a group of failures
grant execute on function jobq.error_pattern to jobq_viewer, jobq_worker, jobq_admin;
-- who is to set a queue looks first whether it is so already
grant execute on function jobq.queue_changed to jobq_viewer, jobq_worker, jobq_admin;
grant execute on function jobq.rate_burst_default, jobq.rate_step_us, jobq.rate_ready_at, jobq.throttle_ready_at,
    jobq.throttled_until, jobq.key_throttled_until to jobq_viewer, jobq_worker, jobq_admin;
-- a CHECK of run calls them
grant execute on function jobq.json_problem, jobq.json_problem_large, jobq.json_require to jobq_worker;
grant execute on function jobq.notify, jobq.notify_is_off, jobq.notifications_full, jobq.wake,
    jobq.worker_is_waiting to jobq_worker, jobq_admin;
grant execute on function jobq.wait_announce, jobq.sleep_announce, jobq.line_changers to jobq_worker;
grant execute on function jobq.lost_output to jobq_worker; -- a reap keeps it

-- A worker claims and ends jobs, adds more, and does the janitor's work. It
-- changes no settings and leaves no trace of people: neither audit nor pause.
grant select, insert, update, delete on
  jobq.pending, jobq.run, jobq.lease, jobq.past_lease, jobq.progress, jobq.attempt, jobq.payload, jobq.unique_key,
  jobq.output, jobq.worker, jobq.event, jobq.stat, jobq.stat_delta, jobq.dependency, jobq.dependency_look
  to jobq_worker;
grant select on jobq.queue, jobq.kind, jobq.kind_setting, jobq.paused_key, jobq.key_weight, jobq.held_host,
    jobq.setting, jobq.watcher,
    jobq.job, jobq.stats to jobq_worker;
grant select, insert, update on jobq.janitor_seen to jobq_worker;
grant select, insert, delete on jobq.throttle to jobq_worker;
grant select, insert, update, delete on jobq.lane, jobq.lane_head, jobq.lane_hint, jobq.key_group to jobq_worker;
grant usage on sequence jobq.lane_turn_seq to jobq_worker;
grant execute on function jobq.turn_take, jobq.turn_share, jobq.turn_holder, jobq.turn_forget, jobq.turn_shareable,
    jobq.queue_admit, jobq.queue_charge, jobq.line_priority, jobq.lane_pause, jobq.lane_hints_take, jobq.lane_pick,
    jobq.lane_weights, jobq.lane_shares, jobq.lane_note, jobq.rate_again_at, jobq.lane_due, jobq.group_turn_first,
    jobq.group_turn, jobq.lane_group, jobq.lane_ungroup, jobq.lane_group_shares, jobq.lane_group_charge,
    jobq.lane_unfill, jobq.lane_look_again, jobq.lane_walk, jobq.lane_claim_sets, jobq.lane_claim_each, jobq.lane_claim,
    jobq.lane_hints_add, jobq.lane_prune to jobq_worker;
grant execute on function jobq.lane_failed, jobq.lane_next, jobq.lane_work, jobq.lane_next_lock, jobq.lane_take,
    jobq.suspect_next, jobq.claim_alone, jobq.lane_head_prune to jobq_worker;
-- Of a schedule it writes what became of its ticks, and nothing that people set.
grant select on jobq.schedule to jobq_worker;
grant update (cursor_at, due_at, last_tick_at, last_job_id, failures, error, error_at) on jobq.schedule to jobq_worker;
grant select, insert, update, delete on jobq.schedule_tick to jobq_worker;
grant execute on function jobq.schedule_fire to jobq_worker;
grant execute on function jobq.schedule_job to jobq_worker, jobq_admin;
grant select, usage, update on sequence jobq.job_id_seq, jobq.position_seq to jobq_worker;
grant select on sequence jobq.dependency_seq to jobq_worker, jobq_admin; -- does anybody wait for what ends?
grant execute on function jobq.parents_ended, jobq.look_soon, jobq.job_exists to jobq_worker, jobq_admin;
grant execute on function jobq.parents, jobq.graph to jobq_worker, jobq_viewer, jobq_admin;
grant execute on function jobq.run_key to jobq_worker; -- nobody else may make run tokens
grant usage on sequence jobq.lease_number_seq to jobq_worker, jobq_admin; -- what never ran has an id of its own, too
grant usage, update on sequence jobq.lease_day_seq to jobq_worker, jobq_admin;
grant execute on function jobq.lease_id_next, jobq.timeline, jobq.generation_check to jobq_worker, jobq_admin;
grant select on sequence jobq.timeline_seq to jobq_worker, jobq_admin;
grant execute on function jobq.lease_day to jobq_worker, jobq_viewer, jobq_admin; -- lists of what ended lately
grant execute on function jobq.run_of, jobq.pending_of to jobq_worker, jobq_admin;
grant execute on function
  jobq.next_state, jobq.error_kept,
  jobq.backoff_delay, jobq.unreadable_set_apart, jobq.runs_over, jobq.partition_add, jobq.partition_prune,
  jobq.payload_prune, jobq.default_prune, jobq.history_sweep, jobq.history_analyze, jobq.audit_prune,
  jobq.kinds_crashed, jobq.tell, jobq.step_prune, jobq.emitted_prune, jobq.event_wake_rest,
  jobq.job_over, jobq.parent_error, jobq.waiting_free, jobq.waiting_cancel, jobq.waiting_settle,
  jobq.dependents_settle, jobq.look_ended, jobq.dependency_step, jobq.dependency_prune
  to jobq_worker;

-- An admin does what operators do: acts on jobs and queues, and has it recorded. It
-- claims nothing: it cannot make a lease, nor extend or end one.
--
-- It may insert and delete rows of run, since a cancel, a requeue, a delete and an undo do
-- that. If an admin inserts a row of its own making, nobody runs anything: workers go by
-- what they have claimed, and reapers by the ids in the lease. Lists show it as a job, and no
-- more. If it has the id of another job, that one cannot be requeued. If its lease is held,
-- it shows as running until its day is dropped. The same holds of a past lease, which an undo
-- inserts if retention has deleted it.
grant insert, update, delete on jobq.pending, jobq.attempt, jobq.payload, jobq.unique_key to jobq_admin;
grant insert, delete, update (cancel_requested_at) on jobq.run to jobq_admin;
grant insert on jobq.past_lease, jobq.sweep_again to jobq_admin;
grant delete on jobq.progress, jobq.step to jobq_admin;
grant execute on function jobq.step_forget, jobq.event_look_again to jobq_admin;
grant insert, update, delete on jobq.queue, jobq.kind, jobq.kind_setting, jobq.paused_key, jobq.key_weight,
    jobq.held_host to jobq_admin;
grant usage on sequence jobq.kind_setting_seq to jobq_admin;
grant insert on jobq.lane_hint to jobq_admin; -- claims hear of a key that is paused, or goes on
grant usage on sequence jobq.lane_hint_id_seq to jobq_admin;
grant execute on function jobq.lane_come to jobq_admin;
grant insert on jobq.stat_delta to jobq_admin;
grant insert, update, delete on jobq.audit, jobq.audit_job to jobq_admin;
grant insert, update, delete on jobq.schedule to jobq_admin;
grant update on jobq.setting to jobq_admin;
grant update (drain_requested_at) on jobq.worker to jobq_admin;
grant execute on function
  jobq.job_problem, jobq.json_problem, jobq.json_problem_large, jobq.json_require, jobq.object_problem,
  jobq.unique_key_take, jobq.unique_key_problem, jobq.unique_key_drop, jobq.unique_keys_take, jobq.unique_key_refuse,
  jobq.unique_keys_release, jobq.job_exists, jobq.moving_refuse, jobq.cancel, jobq.lane_freed, jobq.args_require,
  jobq.running_refuse, jobq.run_renewed, jobq.requeue, jobq.delete_job, jobq.job_lock, jobq.job_rewrite, jobq.job_edit,
  jobq.length_problem, jobq.note_problem, jobq.actor_of, jobq.audit_begin, jobq.audit_begin_many, jobq.audit_resume,
  jobq.plain_args_refuse, jobq.args_patched, jobq.args_patch, jobq.job_anew, jobq.change_problem,
  jobq.act_begin, jobq.act_job, jobq.act_record, jobq.act_each, jobq.act, jobq.act_clone, jobq.act_drain, jobq.act_lost,
  jobq.act_dependents, jobq.dependent_requeue, jobq.parents_reopen, jobq.parents_lost, jobq.job_over,
  jobq.act_queue, jobq.act_kind, jobq.kind_change_problem, jobq.act_kind_set, jobq.act_host, jobq.act_key,
  jobq.act_key_weight, jobq.act_settings,
  jobq.act_queue_set, jobq.export_begin, jobq.export_end, jobq.export_again, jobq.run_restore, jobq.undo_delete,
  jobq.undo_cancel, jobq.undo_requeue, jobq.undo_requeue_args, jobq.undo_job,
  jobq.undo_overtaken, jobq.undo_whole, jobq.undo_begin, jobq.undo_keys_take,
  jobq.undo_try, jobq.undo, jobq.schedule_problem, jobq.schedule_record, jobq.schedule_wishes, jobq.schedule_put,
  jobq.schedule_lock, jobq.schedule_undo, jobq.schedule_set, jobq.schedule_pause, jobq.schedule_resume,
  jobq.schedule_remove, jobq.schedule_run, jobq.schedule_turn
  to jobq_admin;

commit;
