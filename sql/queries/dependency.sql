-- DependencyStep looks at jobs of dependency_look that are due, from look_from on, and deals
-- with up to row_count of those that wait for them: see dependency_step.
-- Needs dependency_look_due_idx, dependency_open_idx, dependency_waits_idx, run_id_idx and pending_pkey.
-- name: DependencyStep :one
select s.looked::integer as looked, s.more::boolean as more, s.last_at::timestamptz as last_at
  from jobq.dependency_step(sqlc.arg(look_from)::timestamptz, sqlc.arg(row_count)::integer) s;

-- DependencyPrune forgets old dependencies, from the given place on: see dependency_prune.
-- Needs dependency_kept_idx, run_id_idx and pending_pkey.
-- name: DependencyPrune :one
select p.looked::bigint as looked, p.last_lease::bigint as last_lease, p.last_child::bigint as last_child,
    p.last_parent::bigint as last_parent
  from jobq.dependency_prune(sqlc.arg(after_lease)::bigint, sqlc.arg(after_child)::bigint,
      sqlc.arg(after_parent)::bigint, sqlc.arg(row_count)::integer) p;

-- ParentList is for which jobs a job waits or has waited, in the order of their ids, the
-- first of them after the given one. Needs dependency_pkey, run_id_idx and pending_pkey.
-- name: ParentList :many
select p.id::bigint as id, coalesce(p.kind, '')::text as kind, coalesce(p.state::text, '')::text as state,
    p.result::jsonb as result
  from jobq.parents(sqlc.arg(id)::bigint, sqlc.arg(after)::bigint, sqlc.arg(count)::integer) p;

-- DependentList is the jobs that have waited for these jobs, in the order of their ids, the first of them after the
-- given one. Lost are those that such a job cancels that has not completed. Needs dependency_parent_idx.
-- name: DependentList :many
select d.child::bigint as id, bool_or(d.parent_state <> 'completed' and d.on_failure = 'cancel')::boolean as lost
  from unnest(sqlc.arg(parents)::bigint[]) as p(id)
  cross join lateral (
    select x.child, x.parent_state, x.on_failure
      from jobq.dependency x
      where x.parent = p.id and x.parent_state is not null and x.child > sqlc.arg(after)::bigint
      order by x.child
      limit sqlc.arg(count)::integer
  ) d
  group by d.child
  order by d.child
  limit sqlc.arg(count)::integer;

-- GraphList is the jobs with which a job belongs together, in the order of their ids: see
-- graph. Needs dependency_pkey, dependency_open_idx, dependency_parent_idx, run_id_idx and pending_pkey.
-- name: GraphList :many
select g.id::bigint as id, coalesce(g.kind, '')::text as kind, coalesce(g.queue, '')::text as queue,
    coalesce(g.state::text, '')::text as state,
    g.after::bigint[] as after
  from jobq.graph(sqlc.arg(id)::bigint) g;
