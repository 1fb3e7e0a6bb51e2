-- What an application may do with its own jobs, and with no others: sql/roles.sql has the role jobq_web for it.
--
-- A job that own_enqueue adds has the login in its metadata: {"added_by": "shop"} for the login shop. The login is the
-- session's (session_user), which set role does not change. A role that can call these functions, but neither enqueue
-- nor an insert, can write no other login there.

-- own_has says whether a job was added by this login. It looks in all tables with one statement: see job_exists.
create function jobq.own_has(job_id bigint) returns boolean
  language sql stable
  return exists (select from jobq.pending p where p.id = job_id and p.metadata ->> 'added_by' = session_user)
    or exists (select from jobq.run r where r.id = job_id and r.metadata ->> 'added_by' = session_user);

-- own_problem is what is wrong with a job that a web application adds, or null: metadata that cannot have added_by, or
-- a job to wait for that is not its own. That one is refused as if it were not there.
create function jobq.own_problem(job jsonb) returns text
  language plpgsql stable
  as $$
declare
  parent text;
begin
  if jsonb_typeof(job -> 'metadata') not in ('object', 'null') then
    return format('metadata must be a JSON object, not %s', jsonb_typeof(job -> 'metadata'));
  end if;
  if jsonb_typeof(job -> 'after') = 'array' then
    for parent in
      select a.value #>> '{}' from jsonb_array_elements(job -> 'after') a where jsonb_typeof(a.value) = 'number'
    loop
      if parent !~ '^[0-9]{1,18}$' or not jobq.own_has(parent::bigint) then
        return format('after: no such job: %s', left(parent, 40));
      end if;
    end loop;
  end if;
  return null;
end $$;

-- own_enqueue adds jobs as enqueue_many does. It replaces no job of others: that one would run with other args.
create function jobq.own_enqueue(jobs jsonb) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  stamp constant jsonb := jsonb_build_object('added_by', session_user);
  place bigint := -1;
  problem text;
begin
  if jsonb_typeof(jobs) = 'array' then
    select format('jobs[%s]: %s', x.i - 1, x.problem) into problem
      from (select j.i, jobq.own_problem(j.job) as problem from jsonb_array_elements(jobs) with ordinality as j(job, i)
          where jsonb_typeof(j.job) = 'object' and (j.job ? 'metadata' or j.job ? 'after')) x
      where x.problem is not null order by x.i limit 1;
    if problem like 'jobs[%]: after: no such job: %' then
      raise sqlstate 'JQ002' using message = problem;
    elsif problem is not null then
      raise sqlstate 'JQ001' using message = problem;
    end if;
    jobs := (
      select coalesce(jsonb_agg(case jsonb_typeof(j.job) when 'object'
          then j.job || jsonb_build_object('metadata', coalesce(nullif(j.job -> 'metadata', 'null'), '{}') || stamp)
          else j.job end order by j.i), '[]')
        from jsonb_array_elements(jobs) with ordinality as j(job, i));
  end if;
  for id, duplicate, replaced in select e.id, e.duplicate, e.replaced from jobq.enqueue_many(jobs) e loop
    place := place + 1;
    if replaced and not jobq.own_has(id) then
      raise sqlstate 'JQ004'
          using message = format('jobs[%s]: another application has a job with this unique key', place);
    end if;
    return next;
  end loop;
end $$;
comment on function jobq.own_enqueue is
  'Adds jobs as enqueue_many does, as jobs of this login, which may then see and cancel them.';

-- own_cancel cancels a job as cancel does; null for no such job, or one of others.
create function jobq.own_cancel(job_id bigint) returns jobq.job_state
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if job_id is not null and not jobq.own_has(job_id) then
    return null;
  end if;
  return jobq.cancel(job_id);
end $$;
comment on function jobq.own_cancel is 'As cancel, of a job that this login has added; null for any other.';

-- own_job is how a job does; no row for no such job, or one of others.
create function jobq.own_job(job_id bigint)
    returns table (state jobq.job_state, progress_percent real, progress_stage text, progress_message text,
      result jsonb)
  language sql stable security definer set search_path = pg_catalog, pg_temp
  begin atomic
    select j.state, j.progress_percent, j.progress_stage, j.progress_message, j.result
      from jobq.job j
      where j.id = own_job.job_id and j.metadata ->> 'added_by' = session_user;
  end;
comment on function jobq.own_job is
  'State, progress and result of a job that this login has added; no row for any other.';
