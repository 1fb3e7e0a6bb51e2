-- Many jobs at once, as a JSON array.

-- object_problem checks a JSON object whose members are to be arguments of enqueue. It returns what is wrong, or null:
-- a member that is not among names, which would otherwise be ignored, a member of another type, or one beyond its
-- limit. It tries one member after the other, which is slow: enqueue_many calls it only if a job looks wrong. A new job
-- needs a kind; with is_change the object changes a job, and needs none.
create function jobq.object_problem(object jsonb, names text[], is_change boolean default false) returns text
  language plpgsql stable
  as $$
declare
  name text;
  value jsonb;
begin
  if jsonb_typeof(object) is distinct from 'object' then
    return format('must be a JSON object such as {"kind": "resize", "args": {}}, not %s',
        coalesce(jsonb_typeof(object), 'null'));
  end if;
  for name, value in select m.key, m.value from jsonb_each(object) m order by m.key loop
    if name <> all(names) then
      return format('unknown member %s; there are %s', to_json(left(name, 128)), array_to_string(names, ', '));
    end if;
    continue when value = 'null'; -- as if it were left out
    if name in ('kind', 'queue', 'unique_key', 'partition_key', 'name', 'after_failure')
        and jsonb_typeof(value) not in ('string', 'number') then
      return format('%s must be text, not %s', name, jsonb_typeof(value));
    end if;
    if name = 'tags' and jsonb_typeof(value) <> 'array' then
      return format('tags must be an array of texts, not %s', jsonb_typeof(value));
    end if;
    begin
      perform r from jsonb_to_record(jsonb_build_object(name, value)) as r(priority bigint, run_at timestamptz,
        max_attempts bigint, max_lost bigint, timeout interval, backoff_base interval, backoff_max interval);
    exception when data_exception then
      return left(format('%s must be %s: %s', name,
        case name when 'priority' then 'a whole number, -32768 to 32767'
            when 'max_attempts' then 'a whole number, 1 to 32767' when 'max_lost' then 'a whole number, 1 to 32767'
          when 'run_at' then 'a time in the years 1 to 9999'
              else 'an interval, positive, at most 10 years' end, sqlerrm), 300);
    end;
  end loop;
  return (
    select jobq.job_problem(case when is_change then coalesce(r.kind, 'k')
        else r.kind end, r.args, r.queue, r.priority, r.run_at,
        r.max_attempts, r.unique_key, r.timeout, r.backoff_base, r.backoff_max,
        case when r.tags is not null then array(select jsonb_array_elements_text(r.tags)) end, r.metadata,
        r.partition_key, r.max_lost)
      from jsonb_to_record(object) as r(kind text, args jsonb, queue text, priority bigint, run_at timestamptz,
        max_attempts bigint, unique_key text, timeout interval, backoff_base interval, backoff_max interval, tags jsonb,
            metadata jsonb,
        partition_key text, max_lost bigint));
end $$;

-- enqueue_many adds the jobs of a JSON array of objects, whose members are
-- the arguments of enqueue: [{"kind": "resize", "args": {"id": 1}}, …]. Other jobs of the
-- array may wait for one by its name: [{"kind": "a", "name": "first"}, {"kind": "b", "after": ["first", 12]}].
create function jobq.enqueue_many(jobs jsonb) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  names constant text[] := '{kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
    backoff_max, tags, metadata, partition_key, name, after, after_failure, uniqueness, max_lost}';
  texts constant text[] := '{kind, queue, unique_key, partition_key, name, after_failure}';
  odd boolean := false;
  problem text;
  c record; -- the jobs as columns
  children integer[]; -- which wait for others
  parents bigint[];
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    raise sqlstate 'JQ001' using message = format(
      'jobs must be a JSON array of objects such as {"kind": "resize", "args": {}}, not %s',
          coalesce(jsonb_typeof(jobs), 'null'));
  elsif jsonb_array_length(jobs) > 100000 then
    raise sqlstate 'JQ001'
        using message = format('jobs must be at most 100000 in one call, not %s', jsonb_array_length(jobs));
  end if;
  begin
    odd := exists (
      select from jsonb_array_elements(jobs) as x(job) cross join lateral jsonb_each(x.job) m
        where m.key <> all(names) or m.key = any(texts) and jsonb_typeof(m.value) not in ('string', 'number', 'null'));
    select array_agg(j.kind) as kinds, array_agg(j.args) as args, array_agg(j.queue) as queues,
        array_agg(j.priority) as priorities, array_agg(j.run_at) as run_ats, array_agg(j.max_attempts) as attempts,
        array_agg(j.unique_key) as keys, array_agg(j.timeout) as timeouts, array_agg(j.backoff_base) as bases,
        array_agg(j.backoff_max) as maxes, array_agg(j.tags) as tags, array_agg(j.metadata) as metadata,
        array_agg(j.partition_key) as partition_keys, array_agg(j.after_failure) as policies,
        array_agg(j.name) as names, array_agg(j.after) as afters, count(j.name) + count(j.after) > 0 as linked,
        case when count(nullif(j.uniqueness, 'null')) > 0 then array_agg(j.uniqueness) end as uniques,
        array_agg(j.max_lost) as max_losts
      into c
      from (
        select r.* from jsonb_array_elements(jobs) with ordinality as x(job, i)
          cross join lateral jsonb_to_record(x.job) as r(kind text, args jsonb, queue text, priority bigint,
            run_at timestamptz, max_attempts bigint, unique_key text, timeout interval, backoff_base interval,
            backoff_max interval, tags jsonb, metadata jsonb, partition_key text, name text, after jsonb,
            after_failure text, uniqueness jsonb, max_lost bigint)
          order by x.i
      ) j;
  exception when data_exception then
    odd := true;
  end;
  if odd then -- now find the job and the member
    for i in 0..jsonb_array_length(jobs) - 1 loop
      problem := jobq.object_problem(jobs -> i, names);
      if problem is not null then
        raise sqlstate 'JQ001' using message = format('jobs[%s]: %s', i, problem),
            hint = 'docs/sql.md lists the limits of all members.';
      end if;
    end loop;
  end if;
  if c.linked then
    select n.children, n.parents into children, parents from jobq.dependencies_named(c.names, c.afters) n;
  end if;
  return query select e.id, e.duplicate, e.replaced
    from jobq.enqueue_arrays(c.kinds, c.args, c.queues, c.priorities, c.run_ats, null, c.attempts, c.keys, c.timeouts,
      c.bases, c.maxes, c.tags, c.metadata, children, parents, c.policies, c.partition_keys, c.uniques, c.max_losts)
      e;
end $$;
comment on function jobq.enqueue_many(jsonb) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';

-- enqueue_many for jobs that a driver sends as json, and as text or untyped.
create function jobq.enqueue_many(jobs json) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs::text));
end $$;
comment on function jobq.enqueue_many(json) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';

create function jobq.enqueue_many(jobs text) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs));
end $$;
comment on function jobq.enqueue_many(text) is
  'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.';
