-- Settings of kinds: defaults of their jobs, and whom to ask about them.

-- What people have set for a kind. A kind without a row, and a column that is null, have the defaults of all kinds. It
-- is not a part of kind: every claim reads that table, and its rows come and go with crashes.
create table jobq.kind_setting (
  name         text     not null primary key,
  -- Of each new job of the kind, where its producer gives none.
  queue        jobq.job_queue,
  priority     smallint,
  max_attempts jobq.job_max_attempts,
  timeout      jobq.job_timeout,
  backoff_base jobq.job_backoff_base,
  backoff_max  jobq.job_backoff_max,
  -- For people.
  owner        text,
  runbook      text,
  constraint "kind must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "owner must be 1 to 255 characters" check (char_length(owner) between 1 and 255),
  constraint "runbook must be 1 to 1024 characters" check (char_length(runbook) between 1 and 1024)
);
comment on table jobq.kind_setting is
  'Settings of kinds. One without a row has the defaults. Change them with jobq.act_kind_set.';
comment on column jobq.kind_setting.name is 'The kind.';
comment on column jobq.kind_setting.queue is 'Of jobs that are given none; null: default.';
comment on column jobq.kind_setting.priority is 'Of jobs that are given none; null: 0.';
comment on column jobq.kind_setting.max_attempts is 'Of jobs that are given none; null: max_attempts_default.';
comment on column jobq.kind_setting.timeout is 'Of jobs that are given none; null: none.';
comment on column jobq.kind_setting.backoff_base is 'Of jobs that are given none; null: 1 second.';
comment on column jobq.kind_setting.backoff_max is 'Of jobs that are given none; null: 1 day.';
comment on column jobq.kind_setting.owner is 'Who is responsible for the kind, such as a team.';
comment on column jobq.kind_setting.runbook is 'What to do when its jobs fail: an address for people.';

-- It has a value once a kind has had settings. Until then, an enqueue does not look for any: to ask the sequence costs
-- much less.
create sequence jobq.kind_setting_seq as bigint;

-- kind_defaults fills the gaps in columns of new jobs (enqueue_arrays) with the settings of their kinds: of two jobs of
-- the kind mail, max_attempts {null,5} becomes {3,5} where the kind has 3. Needs kind_setting_pkey.
create function jobq.kind_defaults(
  kinds text[], inout queues text[], inout priorities bigint[], inout max_attempts bigint[], inout timeouts interval[],
  inout backoff_bases interval[], inout backoff_maxes interval[]
)
  language sql stable
  as $$
    select array_agg(x.queue), array_agg(x.priority), array_agg(x.attempts), array_agg(x.timeout), array_agg(x.base),
        array_agg(x.max)
      from (
        select coalesce(j.queue, k.queue) as queue, coalesce(j.priority, k.priority) as priority,
            coalesce(j.attempts, k.max_attempts) as attempts, coalesce(j.timeout, k.timeout) as timeout,
            coalesce(j.base, k.backoff_base) as base, coalesce(j.max, k.backoff_max) as max
          from unnest(kinds, queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes)
            with ordinality as j(kind, queue, priority, attempts, timeout, base, max, i)
          left join jobq.kind_setting k on k.name = j.kind
          order by j.i
      ) x
  $$;

-- kind_change_problem says what is wrong with new settings of a kind, given as for act_kind_set; null if nothing is.
create function jobq.kind_change_problem(change jsonb) returns text
  language plpgsql stable
  as $$
declare
  texts constant text[] := '{owner, runbook}';
  of_jobs constant text[] := '{queue, priority, max_attempts, timeout, backoff_base, backoff_max}';
  problem text;
begin
  if jsonb_typeof(change) is distinct from 'object' then
    return 'change must be a JSON object';
  end if;
  select case
      when c.key <> all (of_jobs || texts) then
        format('change: unknown member "%s"; there are %s', left(c.key, 100), array_to_string(of_jobs || texts, ', '))
      when c.key = any (texts) and jsonb_typeof(c.value) not in ('string', 'null') then
        format('%s must be text, not %s', c.key, jsonb_typeof(c.value)) end
    into problem
    from jsonb_each(change) c
    where c.key <> all (of_jobs || texts) or c.key = any (texts) and jsonb_typeof(c.value) not in ('string', 'null')
    order by c.key
    limit 1;
  return coalesce(problem,
    jobq.length_problem('owner', coalesce(change ->> 'owner', '-'), 255),
    jobq.length_problem('runbook', coalesce(change ->> 'runbook', '-'), 1024),
    jobq.object_problem(change - texts, of_jobs, true));
end $$;

-- act_kind_set changes settings of a kind: the members of change, which have the names of columns of jobq.kind_setting;
-- null takes one away. Jobs that are there stay as they are. It returns the id of the audit row, or null if nothing
-- changes. The kind need not be known. The lock on its row is what undo_whole takes first, too.
create function jobq.act_kind_set(actor text, kind text, change jsonb, note text default null) returns bigint
  language plpgsql
  as $$
declare
  problem text := coalesce(jobq.length_problem('actor', jobq.actor_of(actor), 255),
    jobq.length_problem('kind', kind, 128), jobq.note_problem(note), jobq.kind_change_problem(change));
  was jobq.kind_setting;
  wanted jobq.kind_setting;
  added boolean; -- the kind had no row
  old jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.kind_setting (name) values (act_kind_set.kind) on conflict (name) do nothing;
  added := found;
  select k.* into strict was from jobq.kind_setting k where k.name = act_kind_set.kind for update;
  wanted := jsonb_populate_record(was, change);
  -- As text they would differ: 1 hour and 60 minutes.
  if wanted is not distinct from was then
    delete from jobq.kind_setting k where k.name = act_kind_set.kind and added;
    return null;
  end if;
  update jobq.kind_setting k
    set queue = wanted.queue, priority = wanted.priority, max_attempts = wanted.max_attempts, timeout = wanted.timeout,
      backoff_base = wanted.backoff_base, backoff_max = wanted.backoff_max, owner = wanted.owner,
      runbook = wanted.runbook
    where k.name = act_kind_set.kind;
  perform nextval('jobq.kind_setting_seq');
  select jsonb_object_agg(b.key, b.value), jsonb_object_agg(a.key, a.value) into old, new
    from jsonb_each(to_jsonb(was)) b
    join jsonb_each(to_jsonb(wanted)) a on a.key = b.key
    where a.value <> b.value;
  return jobq.audit_begin(act_kind_set.actor, 'kind_settings', act_kind_set.kind, act_kind_set.note, new, old);
end $$;
comment on function jobq.act_kind_set is
  'Changes settings of a kind; returns the number of the action, or null if nothing changed.';
