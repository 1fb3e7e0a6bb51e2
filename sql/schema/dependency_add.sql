-- How new jobs say for which others they wait.

-- dependencies_named reads for which jobs the jobs of an enqueue_many wait, from their names and their after arrays,
-- which hold ids and names. It returns what enqueue_arrays takes as after_jobs and after_parents.
create function jobq.dependencies_named(names text[], afters jsonb[])
    returns table (children integer[], parents bigint[])
  language plpgsql
  as $$
declare
  problem text;
begin
  with named as materialized (
    select n.name, min(n.place) as place, count(*) as jobs from unnest(names) with ordinality as n(name, place)
        where n.name is not null group by n.name
  ), edge as materialized (
    select a.place, p.value, p.i,
        case when p.value is null then null
          when jsonb_typeof(p.value) = 'number' and p.value #>> '{}' ~ '^[1-9][0-9]{0,17}$'
              then (p.value #>> '{}')::bigint
          when jsonb_typeof(p.value) = 'string' then -n.place end as parent
      from unnest(afters) with ordinality as a(after, place)
      left join lateral jsonb_array_elements(case
          when jsonb_typeof(a.after) = 'array' then a.after end) with ordinality as p(value, i) on true
      left join named n on jsonb_typeof(p.value) = 'string' and n.name = p.value #>> '{}'
      where a.after is not null
  )
  select (
      select format('jobs[%s]: %s', x.place - 1, x.problem)
        from (
          select n.place, format('name %s is that of several jobs', to_json(left(n.name, 128))) as problem from named n
              where n.jobs > 1
          union all
          select e.place, case when e.value is null then 'after must be an array of ids and names of jobs'
              when jsonb_typeof(e.value) = 'string'
                  then format('after: no job of the list has the name %s', left(e.value::text, 128))
              else format('after must be ids and names of jobs, not %s', left(e.value::text, 128)) end
            from edge e
            where e.parent is null and (e.value is not null or jsonb_typeof(afters[e.place]) not in ('array', 'null'))
        ) x
        order by x.place
        limit 1),
      (select array_agg(e.place::integer order by e.place, e.i) from edge e where e.parent is not null),
      (select array_agg(e.parent order by e.place, e.i) from edge e where e.parent is not null)
    into problem, children, parents;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/dependencies.md has examples.';
  end if;
  return next;
end $$;

-- dependencies_require raises an error for the first of these edges that cannot be: see dependencies_add.
create function jobq.dependencies_require(children integer[], parents bigint[]) returns void
  language plpgsql
  as $$
declare
  odd record;
begin
  if cardinality(children) > 1000000 then
    raise sqlstate 'JQ001'
        using message = format('jobs must wait for at most 1000000 others in one call, not %s', cardinality(children));
  end if;
  select e.child - 1 as place, e.parent into odd
    from unnest(children, parents) as e(child, parent)
    where e.parent is null or e.parent = 0 or e.parent < 0 and -e.parent >= e.child
    order by e.child
    limit 1;
  if found then
    raise sqlstate 'JQ001' using message = case
      when odd.parent < 0
          then format('jobs[%s]: after: a job waits only for jobs before it in the list, not for jobs[%s]', odd.place,
            -odd.parent - 1)
      else format('jobs[%s]: after must be ids of jobs, not %s', odd.place, coalesce(odd.parent::text, 'null')) end;
  end if;
end $$;

-- dependencies_add stores for which jobs the jobs of an enqueue_arrays wait, before the jobs
-- themselves are added. It returns for each job, by its place in the call, whether it
-- waits: true, or null. Edge i says that the job at place children[i] waits for
-- parents[i]: the id of a job, or, if below 0, an earlier place of the call.
-- holders are the ids of the jobs, or of the jobs that hold their unique keys: a job that is
-- not added waits for nothing.
--
-- Parents that have completed count at once. The janitor looks at parents that have not, unless they are
-- jobs of this call: they may be ending just now. Nobody else can see the jobs of
-- the call before it is committed. dependency_seq gets a value only after all that can be refused: a call that
-- fails, or that adds no dependency, costs the ends of jobs nothing.
create function jobq.dependencies_add(job_ids bigint[], holders bigint[], children integer[], parents bigint[],
    policies text[])
  returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  problem record;
  older bigint[]; -- parents that were there before
  waits boolean[];
begin
  perform jobq.dependencies_require(children, parents);
  -- Jobs of the call are parents by their places alone: an id that the call itself has just drawn is
  -- nobody's yet, and would make a circle.
  older := array(
    select distinct p.id
      from (select e.parent > 0 as is_id, case when e.parent < 0 then holders[-e.parent] else e.parent end as id
          from unnest(parents) as e(parent)) p
      where p.is_id or p.id not in (select unnest(job_ids))); -- hashed
  with known as materialized (
    select o.id, o.is_pending is null and r.id is null as missing, r.lease -- of the run that has completed
      from (select u.id, (select true from jobq.pending p where p.id = u.id) as is_pending
          from unnest(older) as u(id) offset 0) o -- so that pending is asked once
      left join lateral (
        select x.id, case when e.ended_at is not null and coalesce(x.state, 'completed') = 'completed'
            then x.lease_id end as lease
          from jobq.run x
          cross join lateral jobq.run_end(x.lease_id, x.slot, x.finished_at) e
          where o.is_pending is null and x.id = o.id -- to look for a job here is to look at each day
          limit 1
      ) r on true
  ), edge as materialized (
    select e.child - 1 as place, job_ids[e.child] as child, p.id as parent, k.missing is true as missing, k.lease,
        coalesce(policies[e.child], 'cancel') as policy, e.parent < 0 as of_call
      from unnest(children, parents) as e(child, parent)
      cross join lateral (select case when e.parent < 0 then holders[-e.parent] else e.parent end as id) p
      left join known k on k.id = p.id
      where job_ids[e.child] = holders[e.child]
  ), added as (
    insert into jobq.dependency (child, parent, parent_lease, parent_state, on_failure)
      select e.child, e.parent, e.lease, case when e.lease is not null then 'completed'::jobq.job_state end, e.policy
        from edge e where not e.missing
      on conflict do nothing
  )
  select e.place, e.parent, e.of_call into problem from edge e where e.missing order by e.place limit 1;
  if found then
    raise sqlstate 'JQ002' using message = format('jobs[%s]: after: no such job: %s', problem.place, problem.parent)
      || case when problem.of_call then ', which still has the unique key of one of these jobs' else '' end;
  end if;
  waits := array(
    select (select true from jobq.dependency d where d.child = j.id and d.parent_state is null limit 1)
      from unnest(job_ids) with ordinality as j(id, place)
      order by j.place);
  if true = any(waits) then
    perform nextval('jobq.dependency_seq');
    perform jobq.look_soon(array(
      select o.id from unnest(older) as o(id)
        where (select true from jobq.dependency d where d.parent = o.id and d.parent_state is null limit 1)), true);
  end if;
  return waits;
end $$;
