-- The jobs with which a job belongs together.

-- parents are the jobs for which a job waits or has waited, with how each has ended and
-- its result; the state is null while the child waits for it. They are in the order of ids, after
-- after_parent: all, or the first row_count.
create function jobq.parents(job_id bigint, after_parent bigint default 0, row_count bigint default null)
  returns table (id bigint, kind text, state jobq.job_state, result jsonb)
  language sql stable
  begin atomic
    select d.parent, j.kind, d.parent_state, j.result
      from (
        select x.parent, x.parent_state from jobq.dependency x
          where x.child = parents.job_id and x.parent > parents.after_parent
          order by x.parent
          limit parents.row_count
      ) d
      left join lateral (select x.kind, x.result from jobq.job x where x.id = d.parent limit 1) j on true
      order by d.parent;
  end;
comment on function jobq.parents is 'The jobs for which a job waits or has waited.';

-- graph is a job, the jobs for which it waits or has waited, the jobs for which these wait or have waited, and so on,
-- up to 1,000; and the jobs that wait or have waited for it, and so on, up to 1,000. They are in the order of ids. Each
-- has up to 100 jobs for which it waits or has waited, and the job itself if it is one of them; the job itself has up
-- to 1,000. A job that is gone has no state.
create function jobq.graph(job_id bigint)
    returns table (id bigint, kind text, queue text, state jobq.job_state, after bigint[])
  language sql stable set enable_seqscan = off set jit = off
  as $$
    with recursive above(id) as (
      select graph.job_id
      union
      select d.parent
        from above a
        cross join lateral (select x.parent from jobq.dependency x where x.child = a.id order by x.parent limit 1000) d
    ), below(id) as (
      select graph.job_id
      union
      select d.child
        from below b
        cross join lateral (
          select x.child
            from (
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is null
                  order by o.child limit 1000)
              union all
              (select o.child from jobq.dependency o where o.parent = b.id and o.parent_state is not null
                  order by o.child limit 1000)
            ) x
            order by x.child
            limit 1000
        ) d
    ), near as (
      (select a.id from above a limit 1000)
      union
      (select b.id from below b limit 1000)
    )
    select n.id, j.kind, j.queue, j.state, array(
        (select x.parent from jobq.dependency x where x.child = n.id order by x.parent limit case
            when n.id = graph.job_id then 1000 else 100 end)
        union
        select x.parent from jobq.dependency x where x.child = n.id and x.parent = graph.job_id
        order by parent)
      from near n
      left join lateral (select x.kind, x.queue, x.state from jobq.job x where x.id = n.id limit 1) j on true
      order by n.id
  $$;
comment on function jobq.graph is 'The jobs with which a job belongs together.';
