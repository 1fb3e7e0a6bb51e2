-- Keys of which at most one unfinished job, or one in a period, can have each.

-- One row per unfinished job that has a unique_key. Unique per kind. A key that is kept
-- for a period keeps its row until that is over, too:
--
--   kind    key   job_id  kept_until  job_over
--   report  may   41                  f         held while job 41 is unfinished
--   report  june  42      12:00       f         likewise, and until 12:00 at least
--   report  july  43      12:00       t         job 43 is over: free from 12:00 on
create table jobq.unique_key (
  kind       text        not null,
  key        text        not null,
  job_id     bigint      not null,
  kept_until timestamptz,
  job_over   boolean     not null default false,
  constraint "the key of a job that is over is kept until a time" check (not job_over or kept_until is not null),
  constraint unique_key_pkey primary key (kind, key),
  -- As pending has them, but before the index refuses a row that is too large for it.
  constraint "kind must be 1 to 128 characters" check (char_length(kind) between 1 and 128),
  constraint "unique_key must be 1 to 255 characters" check (char_length(key) between 1 and 255)
);
comment on table jobq.unique_key is 'Unique keys that are taken, and the jobs that hold them.';
-- For the janitor, which forgets those whose time has come.
create index unique_key_kept_idx on jobq.unique_key (kept_until, job_id) where job_over;

-- unique_key_try reserves (kind, key) for a job and returns the job that holds it: this one, or another one that is
-- unfinished, or that has ended and keeps the key for a time. A job that takes the key keeps it at least until then. It
-- waits for a transaction that is about to take or release the same key.
create function jobq.unique_key_try(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz)
    returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  held record;
  moment timestamptz;
begin
  loop
    insert into jobq.unique_key (kind, key, job_id, kept_until)
      values (wanted_kind, wanted_key, wanted_by, until)
      on conflict do nothing;
    if found then
      return wanted_by;
    end if;
    select u.job_id, u.job_over, u.kept_until into held from jobq.unique_key u
        where u.kind = wanted_kind and u.key = wanted_key;
    if found then
      moment := clock_timestamp(); -- the insert may have waited
      if not held.job_over or held.job_id <> wanted_by and held.kept_until > moment then
        return held.job_id;
      end if;
      -- Its time has come, or the job itself is requeued, which had ended.
      update jobq.unique_key u
        set job_id = wanted_by, job_over = false, kept_until = case when u.job_id = wanted_by then u.kept_until
            else until end
        where u.kind = wanted_kind and u.key = wanted_key and u.job_over
          and (u.job_id = wanted_by or u.kept_until <= moment);
      if found then
        return wanted_by;
      end if;
    end if;
    -- The holder finished between the two statements, or somebody else took the key: try again.
  end loop;
end $$;

-- unique_key_wait is the same with a limit on each wait.
create function jobq.unique_key_wait(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz)
    returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1min'
  as $$
begin
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_take is unique_key_try, and waits for as long as the caller's lock_timeout says, or for a minute at most.
-- Then it raises lock_not_available (55P03).
create function jobq.unique_key_take(wanted_kind text, wanted_key text, wanted_by bigint,
    until timestamptz default null) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if current_setting('lock_timeout') = '0' then
    return jobq.unique_key_wait(wanted_kind, wanted_key, wanted_by, until);
  end if;
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_problem says who has a key.
create function jobq.unique_key_problem(of_kind text, of_key text, holder bigint) returns text
  language plpgsql stable
  as $$
begin
  return format('unique_key %L of kind %L is held by %s', of_key, of_kind, coalesce((
    select format('job %s, which is over, until %s', u.job_id,
        to_char(u.kept_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
      from jobq.unique_key u where u.kind = of_kind and u.key = of_key and u.job_id = holder and u.job_over),
    format('unfinished job %s', holder)));
end $$;

-- unique_key_drop releases the key of a job that has ended, or that was not added after all. A key with
-- a time of its own is kept until then.
create function jobq.unique_key_drop(of_kind text, of_key text, of_job bigint) returns void
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
begin
  delete from jobq.unique_key u
    where u.kind = of_kind and u.key = of_key and u.job_id = of_job
      and (u.kept_until is null or u.kept_until <= moment);
  if not found then
    update jobq.unique_key u set job_over = true where u.kind = of_kind and u.key = of_key and u.job_id = of_job
        and not u.job_over;
  end if;
end $$;

-- run_unique_key_drop releases the unique key of a job that has ended. Such a job always ends on its own row.
create function jobq.run_unique_key_drop() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.unique_key_drop(new.kind, new.unique_key, new.id);
  return null;
end $$;
create trigger run_unique_key_drop after update on jobq.run
  for each row when (new.unique_key is not null and new.state is not null and old.state is null)
  execute function jobq.run_unique_key_drop();
create trigger run_unique_key_drop_at_once after insert on jobq.run
  for each row when (new.unique_key is not null and new.state is not null)
  execute function jobq.run_unique_key_drop();

-- unique_keys_take takes unique keys for jobs, given as columns, and returns the job that holds each key: the new job,
-- or another one. It takes the keys in a fixed order, as everybody does who takes several: so two callers never wait
-- for each other. Whoever also locks rows of jobs takes the keys first, because a job that ends releases its key when
-- its row is already locked.
create function jobq.unique_keys_take(kinds text[], keys text[], ids bigint[], untils timestamptz[] default null)
    returns bigint[]
  language plpgsql
  as $$
declare
  holders bigint[] := ids;
  i integer;
begin
  for i in select k.i from unnest(kinds, keys, ids) with ordinality as k(kind, key, id, i)
      where k.key is not null order by k.kind collate "C", k.key collate "C", k.id loop
    holders[i] := jobq.unique_key_take(kinds[i], keys[i], ids[i], untils[i]);
  end loop;
  return holders;
end $$;

-- unique_key_refuse raises an error for a job whose key another job holds.
create function jobq.unique_key_refuse(kind text, key text, holder bigint) returns void
  language plpgsql
  as $$
begin
  raise sqlstate 'JQ004' using message = jobq.unique_key_problem(kind, key, holder);
end $$;

-- unique_keys_release releases keys that were taken for a job which then did not become unfinished. (A job with a key
-- always ends on its own row of run.) It looks up each key and each job by itself: with a join, the planner, which does
-- not know how many keys come, might read all keys and all waiting jobs.
create function jobq.unique_keys_release(kinds text[], keys text[], ids bigint[]) returns void
  language sql
  set enable_seqscan = off set jit = off
  as $$
    select jobq.unique_key_drop(t.kind, t.key, t.id)
      from unnest(kinds, keys, ids) as t(kind, key, id)
      where (select u.job_id from jobq.unique_key u where u.kind = t.kind and u.key = t.key limit 1) = t.id
        and (select true from jobq.pending p where p.id = t.id limit 1) is null
        and (select true from jobq.run r where r.id = t.id and r.state is null limit 1) is null
  $$;

-- unique_period reads a time of uniqueness; problem says what is wrong with it.
create function jobq.unique_period(name text, value jsonb, out period interval, out problem text)
  language plpgsql stable
  as $$
begin
  if jsonb_typeof(value) = 'string' then
    period := (value #>> '{}')::interval;
  end if;
  if period is null or period <= '0' or period > '10 years' then
    problem := format('uniqueness: %s must be an interval such as "1 hour", positive, at most 10 years, not %s', name,
        left(value::text, 40));
  elsif jobq.has_months(array[period]) then
    problem := format('uniqueness: %s must be in days, hours, minutes or seconds, not %s', name, left(value::text, 40));
  elsif name = 'window' and period < '1 s' then
    problem := format('uniqueness: window must be at least a second, not %s', left(value::text, 40));
  end if;
  -- a day is 24 hours, also where the session's time zone has 23 that day
  period := make_interval(secs => extract(epoch from period));
exception when data_exception then
  problem := format('uniqueness: %s must be an interval such as "1 hour", not %s', name, left(value::text, 40));
end $$;

-- unique_key_of_args is the key that "by" makes of the args of a new job; problem says what is wrong. given is the
-- unique_key of the job.
create function jobq.unique_key_of_args(by jsonb, given text, args jsonb, out key text, out problem text)
  language plpgsql stable
  as $$
declare
  fields text[];
  chosen jsonb;
begin
  if jsonb_typeof(by) = 'array' then
    fields := array(select case jsonb_typeof(e.value) when 'string' then e.value #>> '{}' end
        from jsonb_array_elements(by) e);
  end if;
  if fields = '{*}' then
    chosen := coalesce(args, '{}');
  elsif jsonb_typeof(args) = 'object' then
    select jsonb_object_agg(f.name, args -> f.name) into chosen from unnest(fields) as f(name) where args ? f.name;
  end if;
  problem := case
    when fields is null or cardinality(fields) not between 1 and 32 or array_position(fields, null) is not null
        or '*' = any(fields) and cardinality(fields) > 1
      then 'uniqueness: by must be 1 to 32 names of fields of args, such as ["id"], or ["*"] for all of args'
    when given is not null then 'uniqueness: give unique_key or by, and not both'
    when args ? '$jobq' then 'uniqueness: by cannot look into encrypted args: give a unique_key'
    when chosen is null then format('uniqueness: args have none of the fields %s', left(by::text, 128)) end;
  key := case when problem is null then jobq.json_canonical(chosen)::text end;
end $$;

-- unique_rule reads the uniqueness of a new job: its key, until when the key is kept after the job's end, and what is
-- done if another job holds it; problem says what is wrong. given is the unique_key of the job.
--
-- Example, at 12:34 UTC, for args {"id": 7, "at": "now"}:
--
--   {"by": ["id"]}                                        {"id": 7}
--   {"by": ["id"], "for": "1 hour"}                       {"id": 7}, kept until 13:34
--   {"by": ["id"], "window": "1 hour"}                    {"id": 7} 2026-05-01T12:00:00Z+3600s, kept until 13:00
--   {"window": "1 day", "on_conflict": "fail"}, given x   x 2026-05-01T00:00:00Z+86400s, kept until 24:00
--
-- Windows are counted from 2001-01-01 UTC, a Monday, so that windows of a week begin on Mondays. A key of more than 255
-- characters ends in the hash of the whole key.
create function jobq.unique_rule(uniqueness jsonb, given text, args jsonb, moment timestamptz,
    out problem text, out key text, out until timestamptz, out on_conflict text)
  language plpgsql stable
  as $$
declare
  names constant text[] := '{by, window, for, on_conflict}';
  odd text;
  made record; -- of args
  period record;
  began timestamptz;
begin
  if jsonb_typeof(uniqueness) <> 'object' then
    problem := format('uniqueness must be a JSON object such as {"by": ["id"]}, not %s', jsonb_typeof(uniqueness));
    return;
  end if;
  uniqueness := jsonb_strip_nulls(uniqueness);
  odd := (select m.name from jsonb_object_keys(uniqueness) as m(name) where m.name <> all(names) limit 1);
  on_conflict := coalesce(uniqueness ->> 'on_conflict', 'skip');
  if odd is not null then
    problem := format('uniqueness: unknown member %s; there are %s', to_json(left(odd, 128)),
        array_to_string(names, ', '));
  elsif on_conflict not in ('skip', 'replace', 'fail') then
    problem := format('uniqueness: on_conflict must be skip, replace or fail, not %s', to_json(left(on_conflict, 40)));
  elsif uniqueness ? 'by' then
    made := jobq.unique_key_of_args(uniqueness -> 'by', given, args);
    problem := made.problem;
    key := made.key;
  elsif given is null then
    problem := 'uniqueness needs unique_key, or by';
  else
    key := given;
  end if;
  if problem is not null then
    return;
  end if;
  if uniqueness ? 'window' and uniqueness ? 'for' then
    problem := 'uniqueness: give window or for, and not both';
  elsif uniqueness ? 'window' then
    period := jobq.unique_period('window', uniqueness -> 'window');
    problem := period.problem;
    if problem is null then
      began := date_bin(period.period, moment, '2001-01-01 00:00:00+00');
      key := format('%s %s+%ss', key, to_char(began at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
          trim_scale(extract(epoch from period.period)));
      until := began + period.period;
    end if;
  elsif uniqueness ? 'for' then
    period := jobq.unique_period('for', uniqueness -> 'for');
    problem := period.problem;
    until := moment + period.period;
  end if;
  if char_length(key) > 255 then
    key := left(key, 180) || '#' || encode(sha256(convert_to(key, 'UTF8')), 'hex');
  end if;
end $$;

-- unique_rules reads the uniqueness of jobs, given as columns, and raises an error for the first that is wrong. A job
-- without uniqueness has the key that it was given. The jobs at the places after_jobs wait for others.
create function jobq.unique_rules(given text[], args jsonb[], uniques jsonb[], after_jobs integer[],
    out keys text[], out untils timestamptz[], out conflicts text[])
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
  problem text;
begin
  select array_agg(coalesce(r.key, j.given) order by j.i), array_agg(r.until order by j.i), array_agg(r.on_conflict
      order by j.i),
      (array_agg(format('jobs[%s]: %s', j.i - 1, r.problem) order by j.i) filter (where r.problem is not null))[1]
    into keys, untils, conflicts, problem
    from unnest(given, unique_rules.args, uniques) with ordinality as j(given, args, uniqueness, i)
    left join lateral jobq.unique_rule(j.uniqueness, j.given, j.args, moment) r on jsonb_typeof(j.uniqueness) <> 'null';
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/unique.md has examples.';
  end if;
  -- The holder would have the new args, and run before the jobs for which the new one waits.
  select format('jobs[%s]: uniqueness: on_conflict replace is not for a job that waits for others (after)',
      min(a.job) - 1) into problem
    from unnest(after_jobs) as a(job) where conflicts[a.job] = 'replace' having count(*) > 0;
  if found then
    raise sqlstate 'JQ001' using message = problem;
  end if;
end $$;

-- unique_conflicts_refuse raises an error for the first new job that has on_conflict "fail" and whose key another job
-- holds.
create function jobq.unique_conflicts_refuse(job_ids bigint[], holders bigint[], kinds text[], keys text[],
    conflicts text[]) returns void
  language plpgsql
  as $$
declare
  held record;
begin
  select c.i, c.kind, c.key, c.holder, array_position(job_ids, c.holder) as place into held
    from unnest(job_ids, holders, kinds, keys, conflicts) with ordinality as c(id, holder, kind, key, on_conflict, i)
    where c.on_conflict = 'fail' and c.holder <> c.id
    order by c.i limit 1;
  if found then
    raise sqlstate 'JQ004' using message = format('jobs[%s]: %s', held.i - 1, case
      when held.place is null then jobq.unique_key_problem(held.kind, held.key, held.holder)
      else format('unique_key %L of kind %L is that of jobs[%s]', held.key, held.kind, held.place - 1) end);
  end if;
end $$;

-- jobs_replace handles new jobs with on_conflict "replace" whose keys other jobs hold: each holder gets the args,
-- priority and run_at of the new job, the last one if there are several. It returns for which of the new jobs it has
-- done so. A holder that has begun stays as it is: it runs, has stored a step or a checkpoint, or has ended. A claim of
-- the holder at this moment comes either before, and then it has begun, or after, and then it has the new args: see
-- job_edit.
create function jobq.jobs_replace(
  job_ids bigint[], holders bigint[], conflicts text[], args jsonb[], priorities bigint[], run_ats timestamptz[],
      delays interval[]
) returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  replaced boolean[] := array_fill(false, array[cardinality(job_ids)]);
  i integer;
  has_begun boolean;
begin
  for i in select c.i from unnest(job_ids, holders, conflicts) with ordinality as c(id, holder, on_conflict, i)
      where c.on_conflict = 'replace' and c.holder <> c.id order by c.holder, c.i loop
    select p.checkpoint is not null into has_begun from jobq.pending p where p.id = holders[i] for update;
    continue when has_begun is distinct from false or exists (select from jobq.step s where s.job_id = holders[i]);
    perform jobq.job_edit(holders[i], jsonb_build_object('args', coalesce(args[i], '{}'), 'priority',
      coalesce(priorities[i], 0), 'run_at', coalesce(run_ats[i], now() + delays[i], now())), '{}');
    replaced[i] := true;
  end loop;
  return replaced;
end $$;
