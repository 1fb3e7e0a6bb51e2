set local lock_timeout = '5s';

drop table
  jobq.pending, jobq.run, jobq.lease, jobq.past_lease, jobq.progress, jobq.attempt, jobq.payload, jobq.unique_key,
  jobq.queue, jobq.throttle, jobq.lane, jobq.lane_head, jobq.lane_hint, jobq.turn, jobq.paused_key, jobq.key_weight, jobq.key_group, jobq.kind, jobq.worker, jobq.janitor_seen, jobq.event, jobq.setting, jobq.sweep, jobq.sweep_lease, jobq.sweep_again, jobq.stat_delta, jobq.stat, jobq.generation_turn;
drop domain
  jobq.job_queue, jobq.job_kind, jobq.job_partition_key, jobq.job_unique_key, jobq.job_max_attempts, jobq.job_last_error, jobq.job_clear_reason,
  jobq.job_timeout, jobq.job_backoff_base, jobq.job_backoff_max, jobq.job_run_at, jobq.job_lease_token;
drop function jobq.age_after_default(), jobq.args_bytes_max(), jobq.has_months(interval[]), jobq.json_require(text, jsonb, integer),
  jobq.json_problem(text, jsonb, integer), jobq.json_problem_large(text, jsonb, integer), jobq.lease_default(), jobq.max_attempts_default(), jobq.lease_id_next(), jobq.lease_day(date), jobq.generation_check(), jobq.timeline();
drop sequence jobq.job_id_seq, jobq.position_seq, jobq.waiting_seq, jobq.awaited_seq, jobq.lease_number_seq, jobq.lease_day_seq, jobq.timeline_seq, jobq.system_seq, jobq.lane_turn_seq;
do $$
begin
  for number in 0..15 loop
    execute format('drop sequence jobq.waiting_%s_seq', number);
  end loop;
end $$;
drop type jobq.job_state, jobq.attempt_outcome;
