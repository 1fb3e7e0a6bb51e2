set local lock_timeout = '5s';

do $$ -- days that retention has taken out, and not dropped yet
declare
  day text;
begin
  for day in
    select c.relname
      from pg_class c
      where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'jobq.run'::regclass)
        and c.relkind = 'r' and not c.relispartition and c.relname ~ '^run_[0-9]{8}_past$'
  loop
    execute format('drop table jobq.%I', day);
  end loop;
end $$;

drop function jobq.line_priority(text, text[], integer);
drop function jobq.lane_head_prune(text, text, integer);
drop function jobq.lane_freed(text, text);
drop function jobq.claim_alone(text, text[], text, interval);
drop function jobq.suspect_next(text, text[]);
drop function jobq.lane_take(jobq.queue, text, bigint, bigint, timestamptz);
drop function jobq.lane_next_lock(text, text, text, text[]);
drop function jobq.lane_work(text, text, text[]);
drop function jobq.lane_next(text, text, text);
drop function jobq.lane_failed(bigint, bigint);
drop function jobq.lane_prune(text, text, bigint, integer);
drop function jobq.lane_hints_add(text, text[], boolean);
drop function jobq.lane_hints_take(text, bigint, integer, boolean, boolean);
drop function jobq.lane_pause(text);
drop function jobq.lane_pick(text, text[], text[], integer[], integer);
drop function jobq.lane_weights(text, bigint, bigint, text[], integer);
drop function jobq.lane_shares(text, text[], integer, text);
drop function jobq.lane_note(text);
drop function jobq.lane_due(text, bigint, integer, integer);
drop function jobq.rate_again_at(timestamptz, bigint, integer);
drop function jobq.lane_group(text, text, boolean, integer);
drop function jobq.lane_ungroup(text, integer);
drop function jobq.lane_group_shares(text, text, boolean, text[], bigint, bigint, integer, integer, boolean);
drop function jobq.lane_group_charge(text, text, boolean, bigint, text[], bigint[], integer[], integer[]);
drop function jobq.group_turn(bigint);
drop function jobq.group_turn_first();
drop function jobq.lane_claim(text, text[], text, interval, boolean, boolean, bigint, bigint, boolean, smallint);
drop function jobq.lane_claim_each(text, jobq.queue, text[], bigint, bigint, integer, integer, boolean, boolean, text, integer, integer, text[], boolean, bigint, integer, boolean, timestamptz, integer, bigint, bigint);
drop function jobq.lane_walk(text, text, text[], text, bigint, integer, jsonb);
drop function jobq.lane_claim_sets(text, text[], bigint, integer, boolean, boolean, text[], integer, bigint, boolean, integer, bigint, boolean, text[]);
drop function jobq.lane_look_again(text, integer);
drop function jobq.lane_unfill(text, integer, integer);
drop function jobq.queue_charge(text, integer);
drop function jobq.queue_admit(text, integer, integer, boolean, boolean);
drop function jobq.turn_shareable(text);
drop function jobq.key_throttled_until(text, text, integer, interval, integer);
drop function jobq.throttled_until(text, integer, interval, integer);
drop function jobq.throttle_ready_at(text, bigint, integer, timestamptz);
drop function jobq.rate_ready_at(timestamptz, bigint, bigint, integer, timestamptz);
drop function jobq.rate_step_us(integer, interval);
drop function jobq.rate_burst_default(integer, interval);
drop function jobq.history_analyze(interval);
drop function jobq.default_prune(text, bigint, bigint, integer);
drop function jobq.payload_prune(text, bigint, integer, integer);
drop function jobq.partition_prune(text);
drop function jobq.day_needed(text, date);
drop trigger retention_changed on jobq.setting;
drop trigger retention_changed on jobq.queue;
drop trigger retention_added on jobq.queue;
drop trigger retention_removed on jobq.queue;
drop function jobq.retention_changed();
drop function jobq.history_sweep(integer, integer);
drop function jobq.sweep_leases(jobq.sweep, text, integer);
drop function jobq.sweep_blocks(jobq.sweep, text, integer);
drop function jobq.sweep_begin();
drop function jobq.attempts_forget(bigint[], timestamptz[], timestamptz);
drop function jobq.keep_from_day(interval);
drop function jobq.retention_span();
drop function jobq.keep_from();
drop index jobq.run_default_place_idx;
drop function jobq.partition_add(text, date);
drop function jobq.partition_yield(regclass, regclass[]);
drop function jobq.backoff_delay(integer, interval, interval);
drop function jobq.delete_job(bigint);
drop function jobq.requeue(bigint);
drop function jobq.running_refuse(bigint);
drop function jobq.args_require(bigint);
drop function jobq.cancel(bigint);
drop function jobq.moving_refuse(bigint);
drop function jobq.job_exists(bigint);
drop function jobq.enqueue_many(text);
drop function jobq.enqueue_many(json);
drop function jobq.enqueue_many(jsonb);
drop function jobq.dependencies_named(text[], jsonb[]);
drop function jobq.object_problem(jsonb, text[], boolean);
drop function jobq.enqueue_arrays(
  text[], jsonb[], text[], bigint[], timestamptz[], interval[], bigint[], text[], interval[], interval[], interval[], jsonb[], jsonb[], integer[], bigint[], text[], text[], jsonb[]);
drop function jobq.jobs_replace(bigint[], bigint[], text[], jsonb[], bigint[], timestamptz[], interval[]);
drop function jobq.unique_conflicts_refuse(bigint[], bigint[], text[], text[], text[]);
drop function jobq.unique_rules(text[], jsonb[], jsonb[]);
drop function jobq.unique_rule(jsonb, text, jsonb, timestamptz);
drop function jobq.unique_period(text, jsonb);
drop function jobq.json_canonical(jsonb);
drop function jobq.unique_keys_release(text[], text[], bigint[]);
drop function jobq.unique_key_refuse(text, text, bigint);
drop function jobq.unique_keys_take(text[], text[], bigint[], timestamptz[]);
drop function jobq.enqueue(
  text, text, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], text, bigint[], text, text, text);
drop function jobq.enqueue(
  text, json, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], json, bigint[], text, text, json);
drop function jobq.enqueue(
  text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], jsonb, bigint[], text, text, jsonb);
drop function jobq.after_failure_require(text);
drop function jobq.after_require(bigint[]);
drop function jobq.json_of(text, text);
drop function jobq.unreadable_set_apart(text, text, integer, bigint, integer);
drop function jobq.job_set_apart(bigint, boolean);
drop function jobq.json_shown(jsonb);
drop function jobq.job_unreadable(bigint);
drop function jobq.job_problem(
  text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], jsonb, text);
drop function jobq.runs_over(bigint[], smallint[], bigint[]);
drop function jobq.run_end(bigint, smallint, timestamptz);
drop function jobq.error_pattern(text);
drop view jobq.stats;
drop view jobq.job;
drop function jobq.kept_for(interval);
