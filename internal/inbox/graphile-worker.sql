do $columns$ begin
  perform j.id, j.task_id, j.job_queue_id, j.payload, j.priority, j.run_at, j.max_attempts, j.key, j.flags, t.identifier, q.queue_name
    from {table} j, {from}._private_tasks t, {from}._private_job_queues q limit 0;
end $columns$;

-- graphile_worker.add_job has its answer already when this moves the job to jobq.
create or replace function {from}.jobq_inbox() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $inbox$
declare
  kind text := (select t.identifier from {from}._private_tasks t where t.id = new.task_id);
  named text := (select q.queue_name from {from}._private_job_queues q where q.id = new.job_queue_id);
  problem text;
begin
  if tg_nargs > 0 and kind <> all (tg_argv) then
    return null;
  end if;
  problem := case
    when not {unique_keys} and new.key is not null then
      'job_key: graphile-worker replaces the job that waits with the key, and jobq keeps it'
    when new.flags is not null then 'flags: jobq has none'
    when named is not null and (select q.key_limit from jobq.queue q where q.name = 'default') is distinct from 1 then
      format('queue %s runs one job at a time in graphile-worker: let partition keys do so in jobq: jobq queues set default key_limit=1', named)
  end;
  if problem is not null then
    raise sqlstate 'JQ001' using message = format('job of task %s for graphile-worker: %s', kind, problem), hint = 'docs/migrate.md says what an inbox of jobq takes.';
  end if;
  perform jobq.enqueue(kind, args => new.payload, partition_key => named, priority => new.priority,
    run_at => case when new.run_at > now() then new.run_at end, max_attempts => new.max_attempts, unique_key => new.key,
    metadata => json_build_object('graphile_worker_id', new.id));
  delete from {table} where id = new.id;
  return null;
end $inbox$;
