-- What janitors do with schedules: the jobs of ticks.

-- schedule_job adds the job of a schedule: of a tick, or of none when a person wants
-- it now. It is to run from the tick on, and its metadata say which one it is of.
create function jobq.schedule_job(s jobq.schedule, tick_at timestamptz) returns bigint
  language sql
  as $$
    select jobq.enqueue(s.kind, s.args, s.queue, s.priority, coalesce(tick_at, clock_timestamp()), s.max_attempts, null,
      s.timeout, s.backoff_base, s.backoff_max, s.tags,
          coalesce(s.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('schedule', s.name,
        'tick', to_char(tick_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))), partition_key => s.partition_key)
  $$;

-- schedule_fire adds the jobs of ticks of a schedule that is as a janitor has seen
-- it (revision, cursor_at), and returns their ids. All ticks up to looked_at are
-- dealt with then, whether they are among these or not, and due_at is the next one.
-- Null, and nothing done, when somebody else has dealt with it, changed it, or has
-- it locked: it then waits for nobody. What the insert of a job fails with undoes all.
create function jobq.schedule_fire(
  name text, revision bigint, cursor_at timestamptz, ticks timestamptz[], looked_at timestamptz, due_at timestamptz
) returns bigint[]
  language plpgsql
  as $$
declare
  s jobq.schedule;
  tick timestamptz;
  job bigint;
  jobs bigint[] := '{}';
begin
  select x.* into s from jobq.schedule x
    where x.name = schedule_fire.name and x.revision = schedule_fire.revision and x.cursor_at = schedule_fire.cursor_at
      and x.paused_at is null
    for update skip locked;
  if not found then
    return null;
  end if;
  foreach tick in array ticks loop
    -- One that was made before a clock was set back, or by a schedule of this name that was removed since.
    continue when exists (select from jobq.schedule_tick t where t.schedule = s.name and t.tick_at = tick);
    job := null;
    if s.overlap = 'allow' or not (
        exists (select from jobq.pending p where p.id = s.last_job_id)
        or exists (
          select from jobq.run r
            cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
            where r.id = s.last_job_id and e.ended_at is null)) then
      job := jobq.schedule_job(s, tick);
      jobs := jobs || job;
      s.last_job_id := job;
      s.error := null;
      s.error_at := null;
    end if;
    insert into jobq.schedule_tick (schedule, tick_at, job_id) values (s.name, tick, job);
    s.last_tick_at := tick;
  end loop;
  update jobq.schedule x
    set cursor_at = greatest(s.cursor_at, schedule_fire.looked_at), due_at = schedule_fire.due_at,
      last_tick_at = s.last_tick_at, last_job_id = s.last_job_id, failures = 0, error = s.error, error_at = s.error_at
    where x.name = s.name;
  return jobs;
end $$;

-- schedule_turn takes turns among applications that declare their schedules: until the transaction ends, for ten
-- seconds at most.
create function jobq.schedule_turn() returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if not jobq.turn_take('schedules', 10000) then
    raise lock_not_available using message = 'somebody else has been declaring schedules for 10 seconds',
      detail = coalesce(jobq.turn_holder('schedules')::text, 'Its process is not known.'),
          hint = 'Try again when that transaction has ended.';
  end if;
end $$;
