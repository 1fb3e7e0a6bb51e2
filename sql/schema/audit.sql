-- Who did what to which jobs and queues, and what is needed to undo it.

-- One row per action of a person, however many jobs it is about.
create table jobq.audit (
  id           bigint      not null generated always as identity primary key,
  at           timestamptz not null default clock_timestamp(),
  snapshot_at  timestamptz, -- of an action by filter: jobs that came later are left alone
  id_max       bigint,      -- likewise
  id_done      bigint,      -- how far it has come, from id_max down; of an undo, from the lowest id up
  undone_by    bigint,      -- the undo of this action
  undoes       bigint,      -- the action that this undo is of
  ended_at     timestamptz, -- of an action by filter, or of an undo, that has come to its end
  done         integer     not null default 0, -- jobs changed
  refused      integer     not null default 0, -- jobs that could not be
  done_max     integer,     -- of an action by filter: how many jobs a run of it changes at most
  held_until   timestamptz, -- likewise: until then, nobody else works on it
  held_by      text,        -- likewise: a random name for each who does
  actor        text        not null,
  action       text        not null,
  target       text,        -- the filter, the queue, the kind, the worker, the host or the schedule
  note         text,
  -- what an edit, a clone, or a change of settings or of a schedule sets, by the names of columns; of a key: which, and
  -- its weight
  change       jsonb,
  -- of a change of settings or of a schedule: what was set before, likewise; of a key: its weight; of what goes on: why
  -- it was paused
  replaced     jsonb,
  constraint "actor must be 1 to 255 characters" check (char_length(actor) between 1 and 255),
  constraint "action must be known"
  check (action in ('requeue', 'cancel', 'delete', 'edit', 'clone', 'pause', 'resume', 'drain', 'lost', 'settings',
    'export', 'undo', 'kind_pause', 'kind_resume', 'kind_settings', 'key_pause', 'key_resume', 'key_weight',
    'schedule_set', 'schedule_pause', 'schedule_resume', 'schedule_remove', 'schedule_run', 'host_hold',
    'host_release')),
  constraint "target must be at most 8192 characters" check (char_length(target) <= 8192),
  constraint "note must be at most 1024 characters" check (char_length(note) <= 1024),
  constraint "done_max must be positive" check (done_max > 0),
  constraint "held_by must be at most 64 characters" check (char_length(held_by) <= 64)
);
comment on table jobq.audit is 'What people did: one row for each action.';
-- For the janitor, which forgets old actions.
create index audit_at_idx on jobq.audit (at);

-- One row per job changed. `before` is what an undo needs that the job's row
-- does not have any more; `version` is the moment that the action wrote into
-- the job's row, and a row that still has it was at most edited since. `seq` is
-- the order of events: an action on many jobs may take long.
create table jobq.audit_job (
  seq          bigint      not null generated always as identity,
  audit_id     bigint      not null references jobq.audit (id) on delete cascade,
  job_id       bigint      not null,
  lease_token  bigint      not null,
  version      timestamptz,
  state_before text        not null,
  state_after  text        not null,
  before       jsonb       not null,
  primary key (audit_id, job_id)
);
comment on table jobq.audit_job is 'What an action did to each of its jobs, for the undo.';
create index audit_job_job_id_idx on jobq.audit_job (job_id, audit_id);

-- length_problem says that a text is missing, empty or too long; null if it is not.
create function jobq.length_problem(name text, value text, length_max integer) returns text
  language sql stable
  return case when value is null or char_length(value) not between 1 and length_max then
    format('%s must be 1 to %s characters, not %s', name, length_max, coalesce(char_length(value)::text, 'null')) end;

-- note_problem says that a note is too long; null if it is not. An action needs none.
create function jobq.note_problem(note text) returns text
  language sql stable
  return case when char_length(note) > 1024 then
    format('note must be at most 1024 characters, not %s', char_length(note)) end;

-- actor_of is who acts, for the audit: the name that a call gives; without one what the session says in the setting
-- jobq.actor, and without that too the role that logged in. An empty name is given, and is refused. The setting has
-- the same name in every schema: in one piece, it would be taken for the schema's name.
create function jobq.actor_of(given text) returns text
  language sql stable
  return coalesce(given, nullif(current_setting('jobq' || '.actor', true), ''), session_user::text);

-- audit_begin records that an action begins.
create function jobq.audit_begin(actor text, action text, target text, note text, change jsonb default null,
    replaced jsonb default null) returns bigint
  language plpgsql
  as $$
declare
  begun bigint;
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when char_length(target) > 8192 then
      format('target must be at most 8192 characters, not %s', char_length(target)) end,
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.audit (actor, action, target, note, change, replaced)
    values (jobq.actor_of(audit_begin.actor), audit_begin.action, audit_begin.target, audit_begin.note,
      audit_begin.change, audit_begin.replaced)
    returning id into begun;
  return begun;
end $$;

-- audit_prune deletes actions of more than 90 days ago, the earliest first. An action
-- is deleted after all its jobs. It deletes about row_count rows, and
-- returns how many it has deleted; 0 if nothing is left. If an
-- action had more jobs, it returns the action and the last job deleted, where the
-- next call goes on: otherwise it would read a million deleted rows each time.
-- It runs with its owner's rights, because the janitor of a worker has no other rights on the audit.
create function jobq.audit_prune(after_audit bigint, after_job bigint, row_count integer)
  returns table (deleted bigint, last_audit bigint, last_job bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  old bigint;
  jobs bigint;
begin
  deleted := 0;
  for old in
    select a.id from jobq.audit a where a.at < statement_timestamp() - interval '90 days'
        order by a.at limit audit_prune.row_count
  loop
    with gone as (
      delete from jobq.audit_job t
        where t.ctid = any(array(
          select x.ctid from jobq.audit_job x
            where x.audit_id = old and (old <> audit_prune.after_audit or x.job_id > audit_prune.after_job)
            order by x.job_id
            limit audit_prune.row_count - deleted))
        returning t.job_id
    )
    select count(*), max(g.job_id) into jobs, last_job from gone g;
    deleted := deleted + jobs;
    last_audit := old;
    exit when deleted >= audit_prune.row_count;
    delete from jobq.audit a where a.id = old;
    deleted := deleted + 1;
    exit when deleted >= audit_prune.row_count;
  end loop;
  return next;
end $$;

-- audit_begin_many is audit_begin for an action by filter, which takes many calls of
-- act. It fixes which jobs are meant, so that jobs added later are not. If somebody
-- counted the jobs before, snapshot_at and id_max are those of the count.
create function jobq.audit_begin_many(
  actor text, action text, target text, change jsonb,
  snapshot_at timestamptz default null, id_max bigint default null, done_max integer default null
) returns bigint
  language plpgsql
  as $$
declare
  begun bigint := jobq.audit_begin(audit_begin_many.actor, audit_begin_many.action, audit_begin_many.target, null,
      audit_begin_many.change);
begin
  update jobq.audit a
    set snapshot_at = least(audit_begin_many.snapshot_at, clock_timestamp()),
      id_max = (select least(audit_begin_many.id_max, s.last_value) from jobq.job_id_seq s),
      done_max = audit_begin_many.done_max
    where a.id = begun;
  return begun;
end $$;

-- audit_resume continues an action by filter that was stopped, and notes who
-- did so. An action that is complete, or was undone, cannot be continued.
create function jobq.audit_resume(actor text, audit_id bigint) returns void
  language plpgsql
  as $$
declare
  stopped jobq.audit;
begin
  select a.* into stopped from jobq.audit a where a.id = audit_resume.audit_id for update;
  if not found then
    raise sqlstate 'JQ002' using message = format('no action %s', audit_resume.audit_id);
  end if;
  if stopped.id_max is null or stopped.ended_at is not null or stopped.undone_by is not null then
    raise sqlstate 'JQ003' using message = format(
      case when stopped.id_max is null then 'action %s is not one by filter'
        when stopped.undone_by is not null then 'action %s is undone'
        else 'action %s has come to its end' end, audit_resume.audit_id);
  end if;
  update jobq.audit a set note = format('resumed by %s', jobq.actor_of(audit_resume.actor))
    where a.id = audit_resume.audit_id;
end $$;
