-- Jobs that were cancelled because a job for which they waited had failed, and that wait again when it is requeued.

-- parents_lost says why a job cannot wait for its parents again: one of them is over, in a way that cancels the job.
-- Null if it can.
create function jobq.parents_lost(of_child bigint) returns text
  language sql volatile set enable_seqscan = off set jit = off
  as $$
    select format('it also waits for job %s, which %s', d.parent, case when o.gone then 'is gone'
        when o.state = 'failed' then 'has failed: requeue that with it'
        else 'was cancelled: requeue that with it' end)
      from jobq.dependency d
      cross join lateral jobq.job_over(d.parent) o
      where d.child = of_child and d.on_failure = 'cancel' and d.parent_state is distinct from 'completed'
        and o.state <> 'completed'
      order by d.parent
      limit 1
  $$;

-- parents_reopen makes a job, whose row the caller has locked, wait for those of its parents again that are not over
-- any more. The janitor looks at these for a while, as at the parents of a new job: they may be ending just now.
create function jobq.parents_reopen(of_child bigint) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
declare
  waits_for bigint[];
begin
  with parent as materialized (
    select d.parent, o.state, o.lease_id
      from jobq.dependency d
      left join lateral jobq.job_over(d.parent) o on true
      where d.child = of_child and d.parent_state <> 'completed'
  ), changed as (
    update jobq.dependency d set parent_state = p.state, parent_lease = p.lease_id
      from parent p
      where d.child = of_child and d.parent = p.parent
      returning d.parent, d.parent_state
  )
  select array_agg(c.parent) filter (where c.parent_state is null) into waits_for from changed c;
  if waits_for is null then
    perform jobq.look_soon(array[of_child]);
  else
    perform jobq.look_soon(waits_for, true);
  end if;
end $$;

-- dependent_requeue lets a job wait again that was cancelled with its parent, and that job_lock has locked. It raises
-- an error if another of its parents is over, in a way that would cancel it again, or if its args are gone.
create function jobq.dependent_requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  lost text := jobq.parents_lost(job_id);
  ended jobq.run;
begin
  if lost is not null then
    raise sqlstate 'JQ003' using message = lost;
  end if;
  delete from jobq.run r where r.id = dependent_requeue.job_id and r.state = 'cancelled' returning r.* into ended;
  ended := jobq.run_renewed(ended);
  insert into jobq.pending
    select n.* from jobq.pending_of(ended, null, coalesce(ended.run_at, ended.created_at), ended.attempts,
      ended.crashes, null, null, ended.checkpoint, true) n;
  perform jobq.args_require(dependent_requeue.job_id);
  perform jobq.parents_reopen(dependent_requeue.job_id);
  return 'waiting';
end $$;

-- act_dependents lets those of these jobs wait again that were cancelled with a parent, and records it under a requeue
-- of the audit, or a new one. For example: 12 waits for 11, and 13 waits for 12; 11 has failed, so 12 and 13 were
-- cancelled. After a requeue of 11, it is called for 12, and then for 13. It returns what act returns. A job that
-- somebody has cancelled is left out. A job that cannot wait yet, because another parent is over, is returned with a
-- problem, and does not count as refused: it may be asked for again when that parent has come back. A call takes
-- 1,000 jobs at most.
create function jobq.act_dependents(actor text, ids bigint[], audit_id bigint) returns table (
    audit bigint, job_id bigint, state_before text, state_after text, changed boolean, code text, problem text)
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  begun jobq.audit := jobq.act_begin(act_dependents.actor, 'requeue', act_dependents.ids, null,
    act_dependents.audit_id, null);
  job record;
  ready bigint[] := '{}';
  expected text[] := '{}';
begin
  audit := begun.id;
  state_before := 'cancelled';
  changed := false;
  code := 'JQ003';
  for job in
    select i.id, r.lease_id
      from unnest(act_dependents.ids) as i(id)
      cross join lateral (select x.lease_id, x.last_error from jobq.run x
          where x.id = i.id and x.state = 'cancelled' and x.slot = 0 limit 1) r
      where jobq.parent_named(r.last_error) is not null
      order by i.id
  loop
    job_id := job.id;
    problem := jobq.parents_lost(job.id);
    if problem is not null then
      return next;
    else
      ready := ready || job.id;
      expected := expected || format('cancelled/%s', job.lease_id);
    end if;
  end loop;
  return query select e.* from jobq.act_each(begun, 'requeue_dependent', ready, expected, null) e;
end $$;
comment on function jobq.act_dependents is
  'Lets jobs wait again that were cancelled with a parent, and records it for jobq.undo.';
