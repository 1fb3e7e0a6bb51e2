do $columns$ begin
  perform id, kind, state, args, queue, priority, scheduled_at, max_attempts, unique_key, unique_states, tags, metadata from {table} limit 0;
end $columns$;

-- River's insert has its answer already when this moves the job to jobq.
create or replace function {from}.jobq_inbox() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $inbox$
declare
  -- available, pending, retryable, running and scheduled: as long as a unique key of jobq holds.
  unfinished constant bit(8) := b'11110001';
  problem text;
begin
  if tg_nargs > 0 and new.kind <> all (tg_argv) then
    return null;
  end if;
  problem := case
    when new.state not in ('available', 'scheduled') then
      format('state %s: only new jobs that wait for their time or for a worker go to jobq', new.state)
    when not {unique_keys} and new.unique_key is not null and new.unique_states <> unfinished then
      'unique beyond its end: in jobq a unique key holds while the job is available, pending, retryable, running or scheduled. Name these in UniqueOpts.ByState'
  end;
  if problem is not null then
    raise sqlstate 'JQ001' using message = format('job of kind %s for River: %s', new.kind, problem), hint = 'docs/migrate.md says what an inbox of jobq takes.';
  end if;
  perform jobq.enqueue(new.kind, args => new.args, queue => new.queue, priority => new.priority,
    run_at => case when new.state = 'scheduled' then new.scheduled_at end, max_attempts => new.max_attempts,
    unique_key => case when new.unique_states is not null then encode(new.unique_key, 'hex') end,
    tags => new.tags::text[], metadata => new.metadata || jsonb_build_object('river_id', new.id));
  delete from {table} where id = new.id;
  return null;
end $inbox$;
