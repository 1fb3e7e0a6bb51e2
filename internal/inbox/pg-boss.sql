do $columns$ begin
  perform id, name, state, data, priority, start_after, retry_limit, retry_count, retry_delay, retry_backoff, retry_delay_max, expire_seconds,
    policy, singleton_key, singleton_on, group_id, dead_letter, source_id, blocked, blocking, pending_dependencies from {table} limit 0;
end $columns$;

-- pg-boss's insert has its answer already when this moves the job to jobq. What pg-boss
-- inserts when a job of its own fails, to try it again or as a dead letter, is no new job,
-- and stays, and so do its own jobs, from which those of its schedules come.
create or replace function {from}.jobq_inbox() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $inbox$
declare
  policy text := coalesce(new.policy, 'standard');
  delay interval := nullif(new.retry_delay, 0) * interval '1 s';
  problem text;
begin
  if new.state <> 'created' or new.retry_count > 0 or new.source_id is not null or new.name like '\_\_pgboss\_\_%' or tg_nargs > 0 and new.name <> all (tg_argv) then
    return null;
  end if;
  problem := case
    when policy not in ('standard', 'exclusive') and not ({unique_keys} and policy in ('short', 'stately')) then
      format('policy %s of the queue: jobq has standard and exclusive', policy)
    when new.singleton_on is not null then 'singletonSeconds: a unique key of jobq holds until its job ends, and not for a time'
    when new.group_id is not null then 'group: its limit is in the code of pg-boss''s workers. In jobq, add the job with a partition_key'
    when new.dead_letter is not null then 'deadLetter: jobq has no dead letter queues. A job that fails stays for 7 days'
    when new.blocked or new.blocking or new.pending_dependencies > 0 then 'flow: jobs that wait for other jobs stay in pg-boss'
  end;
  if problem is not null then
    raise sqlstate 'JQ001' using message = format('job of queue %s for pg-boss: %s', new.name, problem), hint = 'docs/migrate.md says what an inbox of jobq takes.';
  end if;
  perform jobq.enqueue(new.name, args => new.data, priority => -new.priority,
    run_at => case when new.start_after > now() then new.start_after end, max_attempts => new.retry_limit + 1,
    unique_key => case when policy <> 'standard' then coalesce(nullif(new.singleton_key, ''), new.name) end,
    timeout => new.expire_seconds * interval '1 s',
    backoff_base => delay, backoff_max => case when new.retry_backoff then new.retry_delay_max * interval '1 s' else delay end,
    metadata => jsonb_build_object('pgboss_id', new.id));
  delete from {table} where name = new.name and id = new.id;
  return null;
end $inbox$;
