-- Schedules: jobs that are added by themselves, by a cron expression in a time zone
-- or every so often. A moment at which a schedule fires is a tick.
--
-- A janitor computes ticks (Go package internal/schedule), and schedule_fire adds
-- their jobs. What makes each tick once is in the rows, so that any number of
-- janitors may try, stop in the middle, and disagree about the time:
--
--   name    cursor_at  due_at    it is 12:00:00.004, and two janitors look
--   report  11:00:00   12:00:00
--   the first:  fire (cursor_at 11:00:00, ticks {12:00:00}): adds the job, and
--               sets cursor_at to 12:00:00.004 and due_at to 13:00:00
--   the second: fire (cursor_at 11:00:00, ticks {12:00:00}): the cursor is another
--               one by now, and nothing happens

create table jobq.schedule (
  name            text        not null primary key,
  revision        bigint      not null default 1, -- grows with each change that people make
  cron            text,       -- either this
  every           interval,   -- or this
  time_zone       text        not null default 'UTC', -- of cron
  -- The job to add.
  kind            text        not null,
  args            jsonb       not null default '{}',
  queue           text,       -- null, as of what follows: the default of the kind when the job is added
  priority        smallint,
  max_attempts    smallint,
  timeout         interval,
  backoff_base    interval,
  backoff_max     interval,
  tags            text[],
  metadata        jsonb,
  partition_key   text,
  -- What becomes of ticks that no janitor was there for: none of them, the latest,
  -- or the latest catch_up_max; but none that is later than catch_up_within.
  catch_up        text        not null default 'latest',
  catch_up_max    integer     not null default 100,
  catch_up_within interval    not null default '1 day',
  -- What becomes of a tick while the job of the one before is unfinished: it is
  -- added all the same (allow), or not (skip).
  overlap         text        not null default 'allow',
  source          text        not null default '', -- where it is declared, such as a file
  created_at      timestamptz not null default clock_timestamp(),
  paused_at       timestamptz,
  paused_by       text,
  pause_reason    text,
  -- What janitors keep. All ticks up to the cursor are dealt with.
  cursor_at       timestamptz not null default clock_timestamp(),
  -- When a janitor is to look at it: at its next tick; at once when somebody has
  -- changed it; later after an error; never (null) while it is paused, or when it
  -- has no ticks any more.
  due_at          timestamptz default clock_timestamp(),
  last_tick_at    timestamptz,
  last_job_id     bigint,     -- of the latest tick that added one; not of schedule_run
  failures        integer     not null default 0, -- in a row
  error           text,       -- why it did not work, until it works again
  error_at        timestamptz,
  constraint "name must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "either cron or every must be given" check ((cron is null) <> (every is null)),
  constraint "cron must be 1 to 255 characters" check (char_length(cron) between 1 and 255),
  constraint "every must be whole seconds, 1 second to 366 days"
  check (every between interval '1 s' and interval '366 days'
    and extract(epoch from every) = trunc(extract(epoch from every))),
  constraint "every, timeout, backoff and catch_up_within are without months"
    check (not jobq.has_months(array[every, timeout, backoff_base, backoff_max, catch_up_within])),
  constraint "time_zone must be 1 to 64 characters" check (char_length(time_zone) between 1 and 64),
  constraint "catch_up must be none, latest or all" check (catch_up in ('none', 'latest', 'all')),
  constraint "catch_up_max must be 1 to 1000" check (catch_up_max between 1 and 1000),
  constraint "catch_up_within must be 1 second to 10 years"
  check (catch_up_within between interval '1 s' and interval '10 years'), constraint "overlap must be allow or skip"
  check (overlap in ('allow', 'skip')), constraint "source must be at most 255 characters"
  check (char_length(source) <= 255), constraint "pause_reason must be at most 1024 characters"
  check (char_length(pause_reason) <= 1024), constraint "error must be at most 1000 characters"
  check (char_length(error) <= 1000), constraint "a paused schedule is not due"
      check (paused_at is null or due_at is null)
) with (fillfactor = 70);
comment on table jobq.schedule is 'Jobs that are added at fixed times. Change it with jobq.schedule_set and its like.';
comment on column jobq.schedule.name is 'The schedule.';
comment on column jobq.schedule.revision is 'Grows with each change that people make.';
comment on column jobq.schedule.cron is 'A cron expression; null: see every.';
comment on column jobq.schedule.every is 'Or how often; null: see cron.';
comment on column jobq.schedule.time_zone is 'Of cron: a name of the IANA database.';
comment on column jobq.schedule.kind is 'Of the jobs to add.';
comment on column jobq.schedule.args is 'Of the jobs.';
comment on column jobq.schedule.queue is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.priority is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.max_attempts is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.timeout is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.backoff_base is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.backoff_max is 'Of the jobs; null: the default of the kind.';
comment on column jobq.schedule.tags is 'Of the jobs; null: none.';
comment on column jobq.schedule.metadata is 'Of the jobs; null: none.';
comment on column jobq.schedule.partition_key is 'Of the jobs; null: none.';
comment on column jobq.schedule.catch_up is 'Which missed ticks are made up for: none, the latest, or all.';
comment on column jobq.schedule.catch_up_max is 'How many at most.';
comment on column jobq.schedule.catch_up_within is 'None that is later than this.';
comment on column jobq.schedule.overlap is 'allow, or skip: no new job while the last one is unfinished.';
comment on column jobq.schedule.source is 'Where it is declared, such as a file; empty: nowhere.';
comment on column jobq.schedule.created_at is 'When it was made.';
comment on column jobq.schedule.paused_at is 'Since when it adds nothing; null: it is not paused.';
comment on column jobq.schedule.paused_by is 'Who paused it.';
comment on column jobq.schedule.pause_reason is 'And why.';
comment on column jobq.schedule.cursor_at is 'All ticks up to this moment are dealt with.';
comment on column jobq.schedule.due_at is 'When a janitor looks at it next; null: never.';
comment on column jobq.schedule.last_tick_at is 'The last tick dealt with.';
comment on column jobq.schedule.last_job_id is 'The last job that a tick added.';
comment on column jobq.schedule.failures is 'How many times in a row it did not work.';
comment on column jobq.schedule.error is 'Why it does not work; null: it does.';
comment on column jobq.schedule.error_at is 'Since when.';
-- The janitor reads what is due, and when the next one is, from this one.
create index schedule_due_idx on jobq.schedule (due_at, name) where due_at is not null;

-- The ticks that were dealt with, each once, and the job of each: null when it was
-- not added, because the one before was unfinished. They are kept for 7 days, also
-- when the schedule is gone: one of the same name makes none of them again, not even
-- when the clock was set back.
create table jobq.schedule_tick (
  schedule text        not null,
  tick_at  timestamptz not null,
  job_id   bigint,
  constraint schedule_tick_pkey primary key (schedule, tick_at)
);
comment on table jobq.schedule_tick is 'Moments at which schedules fired, for 7 days.';
comment on column jobq.schedule_tick.schedule is 'Its name.';
comment on column jobq.schedule_tick.tick_at is 'The moment by the schedule, not when the job was added.';
comment on column jobq.schedule_tick.job_id is 'The job; null: the tick was skipped.';
-- For the janitor, which forgets old ticks.
create index schedule_tick_at_idx on jobq.schedule_tick (tick_at);

-- schedule_problem says in words what is wrong with a new schedule, or null. Whether
-- the cron expression and the time zone are right, only janitors know, and Go.
create function jobq.schedule_problem(s jobq.schedule) returns text
  language sql stable
  as $$
    select case
      when s.name is null then 'name must be 1 to 128 characters, not null'
      when char_length(s.name) not between 1 and 128
          then format('name must be 1 to 128 characters, not %s', char_length(s.name))
      when (s.cron is null) = (s.every is null) then 'either cron or every must be given'
      when char_length(s.cron) not between 1 and 255
          then format('cron must be 1 to 255 characters, not %s', char_length(s.cron))
      when jobq.has_months(array[s.every]) then
        format('every must be in weeks, days, hours, minutes or seconds, not %s: a month or a year is said with cron, '
          'such as 0 0 1 * *', s.every)
      when s.every not between interval '1 s' and interval '366 days'
          or extract(epoch from s.every) <> trunc(extract(epoch from s.every)) then
        format('every must be whole seconds, 1 second to 366 days, not %s', s.every)
      when s.every is not null
          and s.time_zone <> 'UTC' then 'time_zone is for cron: every so often is the same everywhere'
      when char_length(s.time_zone) not between 1 and 64
          then format('time_zone must be 1 to 64 characters, not %s', char_length(s.time_zone))
      when s.catch_up not in ('none', 'latest', 'all')
          then format('catch_up must be none, latest or all, not %s', left(s.catch_up, 100))
      when s.catch_up_max not between 1 and 1000 then format('catch_up_max must be 1 to 1000, not %s', s.catch_up_max)
      when s.catch_up_within not between interval '1 s' and interval '10 years' then
        format('catch_up_within must be 1 second to 10 years, not %s', s.catch_up_within)
      when jobq.has_months(array[s.catch_up_within]) then
        format('catch_up_within must be in weeks, days, hours, minutes or seconds, not %s', s.catch_up_within)
      when s.overlap not in ('allow', 'skip') then format('overlap must be allow or skip, not %s', left(s.overlap, 100))
      when char_length(s.source) > 255
          then format('source must be at most 255 characters, not %s', char_length(s.source))
      when jsonb_typeof(s.metadata) <> 'object'
          then format('metadata must be a JSON object, not %s', jsonb_typeof(s.metadata))
      else coalesce(
        jobq.job_problem(s.kind, s.args, s.queue, s.priority, null, s.max_attempts, null, s.timeout, s.backoff_base,
          s.backoff_max, s.tags, s.metadata || jsonb_build_object('schedule', s.name, 'tick', '2000-01-01T00:00:00Z'),
              s.partition_key),
        jobq.json_problem('args', s.args, jobq.args_bytes_max()), jobq.json_problem('metadata', s.metadata, 65000))
    end
  $$;

-- schedule_record writes into the audit what somebody does to a schedule, with what
-- its undo needs, and tells the janitor that leads to look at schedules now. It
-- returns the id of the entry.
create function jobq.schedule_record(actor text, action text, name text, note text, replaced jsonb,
    change jsonb default null) returns bigint
  language plpgsql
  as $$
declare
  begun bigint := jobq.audit_begin(actor, action, name, note, change, replaced);
begin
  perform jobq.notify('schedule', '');
  return begun;
end $$;

-- schedule_wishes is what people set of a schedule, and not what janitors keep.
create function jobq.schedule_wishes(s jobq.schedule) returns jsonb
  language sql stable
  return to_jsonb(s) - '{revision, created_at, paused_at, paused_by, pause_reason, cursor_at, due_at, last_tick_at,
    last_job_id, failures, error, error_at}'::text[];

-- schedule_put makes a schedule, or changes the one of that name into this one, and
-- records it. It returns the id of the entry in the audit, or null when it is so
-- already. A new one begins at the ticks from now on; one that was removed is as it
-- was, and of one that is there only what people set changes. With fresh, one that is
-- there is a conflict.
create function jobq.schedule_put(new jobq.schedule, actor text, note text default null, fresh boolean default false)
    returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule;
begin
  new.revision := 1;
  new.cursor_at := clock_timestamp();
  new.due_at := case when new.paused_at is null then new.cursor_at end;
  new.failures := 0;
  new.error := null;
  new.error_at := null;
  loop
    insert into jobq.schedule select new.* on conflict on constraint schedule_pkey do nothing;
    exit when found;
    if fresh then
      raise sqlstate 'JQ003' using message = format('schedule %s has been made meanwhile', new.name);
    end if;
    select s.* into old from jobq.schedule s where s.name = new.name for update;
    continue when not found; -- removed meanwhile
    if jobq.schedule_wishes(old) = jobq.schedule_wishes(new) then
      return null;
    end if;
    new.revision := old.revision + 1;
    if (old.cron, old.every, old.time_zone) is not distinct from (new.cron, new.every, new.time_zone) then
      new.cursor_at := old.cursor_at;
    end if;
    if old.paused_at is not null then
      new.due_at := null;
    end if;
    -- In place: whoever waits for the row is to find it.
    update jobq.schedule s
      set revision = new.revision, cron = new.cron, every = new.every, time_zone = new.time_zone, kind = new.kind,
        args = new.args, queue = new.queue, priority = new.priority, max_attempts = new.max_attempts,
        timeout = new.timeout, backoff_base = new.backoff_base, backoff_max = new.backoff_max, tags = new.tags,
        metadata = new.metadata, partition_key = new.partition_key, catch_up = new.catch_up,
        catch_up_max = new.catch_up_max, catch_up_within = new.catch_up_within, overlap = new.overlap,
        source = new.source, cursor_at = new.cursor_at, due_at = new.due_at, failures = new.failures, error = null,
        error_at = null
      where s.name = new.name;
    exit;
  end loop;
  return jobq.schedule_record(schedule_put.actor, 'schedule_set', new.name, schedule_put.note, case
      when old.name is not null then jobq.schedule_wishes(old) end,
    jobq.schedule_wishes(new) - 'name' || case when pg_column_size(new.args) > 1000 then '{"args": "..."}'
        else '{}'::jsonb end);
end $$;

-- schedule_set makes a schedule, or changes the one of that name into this one: what
-- is left out, or null, gets its default; of the jobs, that of their kind when they are
-- added. It returns the id of the entry in the
-- audit, for undo; when it is so already, null, and nothing is written. With another
-- cron expression, interval or time zone, its ticks are those from now on. A paused
-- one stays paused.
create function jobq.schedule_set(
  name            text,
  kind            text,
  cron            text     default null,
  every           interval default null,
  time_zone       text     default null,
  args            jsonb    default null,
  queue           text     default null,
  priority        bigint   default null,
  max_attempts    bigint   default null,
  timeout         interval default null,
  backoff_base    interval default null,
  backoff_max     interval default null,
  tags            text[]   default null,
  metadata        jsonb    default null,
  partition_key   text     default null,
  catch_up        text     default null,
  catch_up_max    integer  default null,
  catch_up_within interval default null,
  overlap         text     default null,
  source          text     default null,
  actor           text     default null
) returns bigint
  language plpgsql
  as $$
declare
  new jobq.schedule;
  problem text := jobq.job_problem(kind, args, queue, priority, null, max_attempts, null, timeout, backoff_base,
      backoff_max, tags, metadata);
begin
  if problem is not null then -- before numbers are cut to the size of their columns
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  new.name := schedule_set.name;
  new.cron := schedule_set.cron;
  new.every := schedule_set.every;
  new.time_zone := coalesce(schedule_set.time_zone, 'UTC');
  new.kind := schedule_set.kind;
  new.args := coalesce(schedule_set.args, '{}');
  new.queue := schedule_set.queue;
  new.priority := schedule_set.priority;
  new.max_attempts := schedule_set.max_attempts;
  new.timeout := schedule_set.timeout;
  new.backoff_base := schedule_set.backoff_base;
  new.backoff_max := schedule_set.backoff_max;
  new.tags := nullif(schedule_set.tags, '{}');
  new.metadata := schedule_set.metadata;
  new.partition_key := schedule_set.partition_key;
  new.catch_up := coalesce(schedule_set.catch_up, 'latest');
  new.catch_up_max := coalesce(schedule_set.catch_up_max, 100);
  new.catch_up_within := coalesce(schedule_set.catch_up_within, interval '1 day');
  new.overlap := coalesce(schedule_set.overlap, 'allow');
  new.source := coalesce(schedule_set.source, '');
  new.created_at := clock_timestamp();
  problem := jobq.schedule_problem(new);
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/schedules.md has examples.';
  end if;
  return jobq.schedule_put(new, schedule_set.actor);
end $$;
comment on function jobq.schedule_set is
  'Makes or changes a schedule; returns the number of the action, or null if nothing changed.';

-- schedule_lock locks a schedule and returns it. A name that nobody has is refused.
create function jobq.schedule_lock(name text) returns jobq.schedule
  language plpgsql
  as $$
declare
  s jobq.schedule;
begin
  select x.* into s from jobq.schedule x where x.name = schedule_lock.name for update;
  if not found then
    raise sqlstate 'JQ002'
        using message = format('no schedule %s', coalesce(to_json(left(schedule_lock.name, 128))::text, 'null'));
  end if;
  return s;
end $$;

-- schedule_pause stops a schedule, until schedule_resume: nothing fires once this is
-- committed. It returns the id of the entry in the audit, or null when it was paused
-- already.
create function jobq.schedule_pause(name text, reason text default null, actor text default null) returns bigint
  language plpgsql
  as $$
begin
  if char_length(reason) > 1024 then
    raise sqlstate 'JQ001'
        using message = format('reason must be at most 1024 characters, not %s', char_length(reason));
  end if;
  if (jobq.schedule_lock(name)).paused_at is not null then
    return null;
  end if;
  update jobq.schedule s
    set paused_at = clock_timestamp(), paused_by = jobq.actor_of(actor), pause_reason = reason, due_at = null,
        revision = s.revision + 1
    where s.name = schedule_pause.name;
  return jobq.schedule_record(actor, 'schedule_pause', name, reason, null);
end $$;
comment on function jobq.schedule_pause is 'The schedule adds nothing until schedule_resume.';

-- schedule_resume lets a schedule fire again, at the ticks from now on. It returns
-- the id of the entry in the audit, or null when it was not paused.
create function jobq.schedule_resume(name text, actor text default null, note text default null) returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule := jobq.schedule_lock(name);
begin
  if old.paused_at is null then
    return null;
  end if;
  update jobq.schedule s
    set paused_at = null, paused_by = null, pause_reason = null, cursor_at = greatest(s.cursor_at, clock_timestamp()),
      due_at = clock_timestamp(), revision = s.revision + 1
    where s.name = schedule_resume.name;
  return jobq.schedule_record(actor, 'schedule_resume', name, note,
      jsonb_build_object('pause_reason', old.pause_reason));
end $$;
comment on function jobq.schedule_resume is 'The schedule goes on.';

-- schedule_remove forgets a schedule. Its jobs stay. It returns the id of the entry
-- in the audit.
create function jobq.schedule_remove(name text, actor text default null, note text default null) returns bigint
  language plpgsql
  as $$
declare
  old jobq.schedule := jobq.schedule_lock(name);
begin
  delete from jobq.schedule s where s.name = schedule_remove.name;
  return jobq.schedule_record(actor, 'schedule_remove', name, note, to_jsonb(old));
end $$;
comment on function jobq.schedule_remove is 'Removes a schedule; its jobs stay.';

-- schedule_undo takes back what was done to a schedule, if nothing was done to it
-- since that this would take back, too:
--
--   set      it is as it was before, or is removed if it was not there
--   remove   it is there again, paused if it was, and fires at the ticks from now on
--   pause    it goes on, at the ticks from now on
--   resume   it is paused again, for the reason that it was paused for
--
-- A pause is not in the way of undoing a change, nor a change in the way of undoing a
-- pause. Whoever makes or removes the schedule is in the way of both.
create function jobq.schedule_undo(actor text, undone jobq.audit) returns void
  language plpgsql
  as $$
declare
  whole constant boolean := undone.action = 'schedule_remove' or undone.action = 'schedule_set'
      and undone.replaced is null;
  later jobq.audit;
  was jobq.schedule;
begin
  perform from jobq.schedule s where s.name = undone.target for update; -- nobody changes it from here on
  select a.* into later
    from jobq.audit a
    where a.id > undone.id and a.target = undone.target and a.action like 'schedule\_%' and a.action <> 'schedule_run'
      and (whole or a.action = 'schedule_remove' or (a.action = 'schedule_set') = (undone.action = 'schedule_set'))
    order by a.id
    limit 1;
  if found then
    raise sqlstate 'JQ003' using message = format('schedule %s has had a %s meanwhile, by action %s', undone.target,
      case later.action when 'schedule_set' then 'change' when 'schedule_remove' then 'removal'
          else substr(later.action, 10) end, later.id);
  end if;
  if undone.replaced is not null then
    was := jsonb_populate_record(was, undone.replaced);
    if undone.replaced -> 'args' = 'null' then -- JSON's null, not ours
      was.args := 'null';
    end if;
  end if;
  case
    when undone.action = 'schedule_pause' then
      perform jobq.schedule_resume(undone.target, actor, 'undo');
    when undone.action = 'schedule_resume' then
      perform jobq.schedule_pause(undone.target, was.pause_reason, actor);
    when undone.replaced is null then
      perform jobq.schedule_remove(undone.target, actor, 'undo');
    else
      was.created_at := coalesce(was.created_at, clock_timestamp());
      -- Somebody may be making one of that name: it waits for them, and then is refused.
      perform jobq.schedule_put(was, actor, 'undo', undone.action = 'schedule_remove');
  end case;
end $$;

-- schedule_run adds the job of a schedule now, whatever its ticks are and also when
-- it is paused, and returns its id. For overlap skip, that job does not count.
create function jobq.schedule_run(name text, actor text default null) returns bigint
  language plpgsql
  as $$
declare
  s jobq.schedule := jobq.schedule_lock(name);
  job bigint;
begin
  job := jobq.schedule_job(s, null);
  perform jobq.audit_begin(actor, 'schedule_run', name, format('job %s', job));
  return job;
end $$;
comment on function jobq.schedule_run is 'Adds the schedule''s job now, and returns its id.';
