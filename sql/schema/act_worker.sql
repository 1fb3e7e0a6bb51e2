-- Actions of people on workers and hosts.

-- act_drain asks a worker to claim no more jobs, and to end when its running jobs
-- have ended. The worker learns of it at once, or with its next heartbeat. It
-- returns the id of the audit row, 0 if the worker drains already, or null if
-- there is no such worker.
create function jobq.act_drain(actor text, worker text) returns bigint
  language plpgsql
  as $$
begin
  if worker is null then
    raise sqlstate 'JQ001' using message = 'worker must not be null';
  end if;
  update jobq.worker w set drain_requested_at = clock_timestamp()
    where w.id = act_drain.worker and w.drain_requested_at is null and not w.draining;
  if found then
    perform jobq.notify('drain', act_drain.worker);
    return jobq.audit_begin(act_drain.actor, 'drain', act_drain.worker, null);
  end if;
  return (select 0 from jobq.worker w where w.id = act_drain.worker);
end $$;

-- act_lost takes the leases of a worker away now, for an operator who knows that it, or its host, does not come back.
-- The janitor puts the jobs back at once, as if the worker had released them: without an attempt or a crash, and with
-- the reason as the error of the run. If the worker lives all the same, what it stores for these jobs is refused, it
-- ends their programs when it hears of that, and it drains.
--
-- It returns the id of the audit row, 0 if there was nothing to do; how many jobs the worker held; and how many
-- leases somebody has locked, which stay: the same call takes them later. No row: there is no such worker. It takes
-- 1,000 leases at most. It runs with its owner's rights, because operators have no other right on leases. It reads all
-- of lease, which holds only what is claimed now.
create function jobq.act_lost(actor text, worker text, note text)
    returns table (audit bigint, jobs bigint, locked bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text := coalesce(jobq.length_problem('worker', worker, 255), jobq.note_problem(note),
    jobq.length_problem('actor', jobq.actor_of(actor), 255));
  why text := left(format('worker %s is lost, says %s', worker, jobq.actor_of(actor))
    || coalesce(': ' || nullif(note, ''), ''), 850);
  taken bigint;
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if not exists (select from jobq.worker w where w.id = act_lost.worker)
      and not exists (select from jobq.lease l where l.owner = act_lost.worker) then
    return;
  end if;
  update jobq.worker w set drain_requested_at = clock_timestamp()
    where w.ctid = any(array(select x.ctid from jobq.worker x where x.id = act_lost.worker
      and x.drain_requested_at is null and not x.draining for update skip locked));
  audit := found::integer;
  with gone as (
    update jobq.lease l set lost_at = clock_timestamp(), lost_reason = why
      where l.ctid = any(array(select x.ctid from jobq.lease x where x.owner = act_lost.worker
        and x.lost_reason is null order by x.id limit 1000 for update skip locked))
      returning cardinality(l.job_ids) - cardinality(l.ended_slots) as jobs
  )
  select count(*), coalesce(sum(g.jobs), 0) into taken, act_lost.jobs from gone g;
  select count(*) into locked from jobq.lease l where l.owner = act_lost.worker and l.lost_reason is null;
  if audit > 0 or taken > 0 then
    perform jobq.notify('drain', act_lost.worker);
    perform jobq.notify('due', '-1'); -- a janitor that sleeps looks at leases
    audit := jobq.audit_begin(act_lost.actor, 'lost', act_lost.worker, nullif(act_lost.note, ''));
    update jobq.audit a set done = act_lost.jobs where a.id = act_lost.audit;
  end if;
  return next;
end $$;
comment on function jobq.act_lost is
  'Takes all leases of a worker away, which does not come back: its jobs use no attempt.';

-- act_host holds a host (host_hold), or releases it (host_release). The workers of a host that is held claim nothing,
-- also those that start later. What they run goes on, and what they have claimed and not begun goes back without an
-- attempt. They learn of it at once, or with their next heartbeat.
--
-- It returns the id of the audit row, null if the host was held, or not held, already; and how many workers the host
-- has now. The name must be equal to theirs in jobq.worker.hostname. One that no worker has can be held.
create function jobq.act_host(actor text, action text, host text, note text)
    returns table (audit bigint, workers bigint)
  language plpgsql
  as $$
declare
  was text; -- the reason for a hold that ends
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when action is null or action not in ('host_hold', 'host_release') then
      format('action must be host_hold or host_release, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('host', host, 255),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_host.action = 'host_hold' then
    insert into jobq.held_host (host, held_by, hold_reason)
      values (act_host.host, jobq.actor_of(act_host.actor), nullif(act_host.note, ''))
      on conflict on constraint held_host_pkey do nothing;
  else
    delete from jobq.held_host h where h.host = act_host.host returning h.hold_reason into was;
  end if;
  if found then
    perform jobq.notify('drain', w.id) from jobq.worker w where w.hostname = act_host.host;
    audit := jobq.audit_begin(act_host.actor, act_host.action, act_host.host, nullif(act_host.note, ''), null,
      case when was is not null then jsonb_build_object('hold_reason', was) end);
  end if;
  select count(*) into workers from jobq.worker w where w.hostname = act_host.host;
  return next;
end $$;
comment on function jobq.act_host is
  'Holds a host, whose workers then claim nothing, or releases it; returns the number of the action, null if nothing '
  'changed, and how many workers the host has.';
