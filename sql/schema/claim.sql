-- Claims outside of the line: suspects, which run alone. The claim itself is in sql/queries/claim.sql.

-- line_priority is the least urgent priority that is more urgent than below, among a queue's jobs without a
-- partition key, of those of these kinds that are not paused; null if there is none. It is a function with
-- settings of its own, since without statistics the planner expects few jobs, and would rather sort the
-- whole line. Needs pending_claim_idx and kind_paused_idx only.
create function jobq.line_priority(of_queue text, kinds text[], below integer) returns smallint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select p.priority
      from jobq.pending p
      where p.queue = of_queue and p.partition_key = '' and p.position is not null and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and p.priority < below
      order by p.priority desc, p.position desc
      limit 1
  $$;

-- suspect_next is the suspect (pending_suspect_idx) of these kinds that is due first in a queue, and in how many
-- milliseconds; no row if there is none that may start, because the queue, its kind or its key is paused. Needs
-- pending_suspect_idx, kind_paused_idx, paused_key_pkey and queue_pkey: the conditions leave the planner no other
-- index.
create function jobq.suspect_next(of_queue text, kinds text[]) returns table (id bigint, kind text, due_ms bigint)
  language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  return query
    select p.id, p.kind::text, ceil(extract(epoch from p.run_at - clock_timestamp()) * 1000)::bigint
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0
        and p.crashes >= least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts))
        and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and not exists (select from jobq.queue q where q.name = of_queue and q.paused_at is not null)
        -- a lookup
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null
      order by p.run_at, p.id
      limit 1;
end $$;

-- claim_alone claims one suspect (pending_suspect_idx) that is due, the one that has waited longest, for a worker that
-- runs nothing else until the job has ended. It keeps the limits, rates and orders of the queue and of its keys: it has
-- the queue's turn, as claims of queues with limits have, and looks at 100 suspects at most for one that may start. It
-- takes turns with nobody's lanes. Needs pending_suspect_idx, kind_paused_idx, paused_key_pkey and queue_pkey, and what
-- the functions need that it calls.
create function jobq.claim_alone(of_queue text, of_kinds text[], of_owner text, lease_time interval) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint,
      max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint,
      args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text, lost smallint
)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
#variable_conflict use_column
declare
  q jobq.queue;
  suspect record;
  new_lease bigint;
  claimed timestamptz;
begin
  if (select a.admitted from jobq.queue_admit(of_queue, 1, 1, true) a) = 0 then
    return;
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  q.name := of_queue; -- which may have no row
  new_lease := jobq.lease_id_next();
  claimed := clock_timestamp();
  for suspect in
    select p.id, p.ctid as place, p.partition_key
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0
        and p.crashes >= least(2, coalesce(p.lost + 1, p.max_attempts - p.attempts))
        and p.run_at <= claimed and p.kind = any(of_kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null)) and q.paused_at is null
        -- a lookup
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null
      order by p.run_at, p.id
      limit 100
  loop
    perform from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id for update skip locked;
    continue when not found
      or suspect.partition_key <> '' and not jobq.lane_take(q, suspect.partition_key, suspect.id, new_lease, claimed);
    insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
      values (new_lease, claimed, claimed + lease_time, of_owner, of_queue, array[suspect.id]);
    return query
      with taken as (
        delete from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id
          returning p.*
      )
      insert into jobq.run as r
        select n.* from taken t cross join lateral jobq.run_of(row(t.*)::jobq.pending, new_lease, 1::smallint) n
        returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue,
          r.kind, r.created_at, coalesce(r.run_at, r.created_at), claimed,
              coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
          coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
          r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null,
          coalesce(r.partition_key, ''), coalesce(r.lost, 0)::smallint;
    perform jobq.queue_charge(of_queue, 0);
    return;
  end loop;
end $$;

-- host_gone is the host of a worker that was lost, if no other worker of that host has started or lived on since; null
-- if one has, or if nothing is known of the worker. A worker beats every 10 seconds: when one has done so 15 seconds
-- after the last time of the lost one, they did not end together.
create function jobq.host_gone(owner text) returns text
  language sql stable
  return (select w.hostname from jobq.worker w
    where w.id = owner and not exists (select from jobq.worker x
      where x.hostname = w.hostname and x.id <> w.id
        and (x.started_at > w.heartbeat_at or x.heartbeat_at > w.heartbeat_at + interval '15 seconds')));

-- hosts_back takes hosts that were gone, and when that was found. It returns how many of these moments count as crashes
-- after all, since a worker of one of their hosts has been heard of later; and the hosts of the other moments. Of
-- machines that fail together and come back, it is one crash. One that was found at lived_at is on a host that lives.
create function jobq.hosts_back(hosts text[], found_at timestamptz[], lived_at timestamptz,
    out crashes integer, out hosts_left text[], out left_at timestamptz[])
  language sql stable
  begin atomic
    with gone as (
      select g.host, g.at, bool_or(exists (
          select from jobq.worker w where w.hostname = g.host and w.heartbeat_at > g.at
        )) over (partition by g.at) as back
        from unnest(hosts, found_at) as g(host, at) where g.at is distinct from lived_at
    )
    select count(distinct g.at) filter (where g.back)::integer + (lived_at is not null)::integer,
        coalesce(array_agg(g.host order by g.at, g.host) filter (where not g.back), '{}'),
        coalesce(array_agg(g.at order by g.at, g.host) filter (where not g.back), '{}')
      from gone g;
  end;

-- kind_crash adds a crash to what is known of a kind: of the hosts that are gone with it, or of one that lives. ended
-- says that a run of the kind has ended in another way since the last crash. It changes nothing in the table.
create function jobq.kind_crash(known jobq.kind, claimed timestamptz, gone text[], lives boolean, ended boolean)
    returns jobq.kind
  language plpgsql stable
  as $$
declare
  back record;
begin
  if ended then
    known.crashes := 0;
    known.gone_hosts := '{}';
    known.gone_at := '{}';
  end if;
  if ended or claimed > known.crashed_at then
    known.crashed_at := clock_timestamp();
  elsif known.crashed_at <> all(known.gone_at) then
    return known; -- that crash has been counted
  end if;
  if not lives then
    known.gone_hosts := (known.gone_hosts || gone)[cardinality(known.gone_hosts) + cardinality(gone) - 199:];
    known.gone_at := (known.gone_at
      || array_fill(known.crashed_at, array[cardinality(gone)]))[cardinality(known.gone_at) + cardinality(gone) - 199:];
  end if;
  select b.* into back from jobq.hosts_back(known.gone_hosts, known.gone_at,
    case when lives then known.crashed_at end) b;
  known.crashes := least(known.crashes + back.crashes, 1000);
  known.gone_hosts := back.hosts_left;
  known.gone_at := back.left_at;
  return known;
end $$;

-- kinds_crashed counts crashes: runs of these kinds were lost because their workers stopped responding. The run of
-- kinds[i] was claimed at claimed[i] by owners[i]. If a kind has crashed workers quarantine_crashes times in a row, it
-- is paused, and returned.
--
-- A crash is the next one of the row if its run was claimed after the crash before was found. A row ends when any run
-- of the kind ends in another way. With quarantine_crashes = 3, and a lease of one minute:
--
--   12:00  workers A and B are killed while both run Encode and Send
--   12:01  both are found: one crash of each kind
--   12:02  C claims Encode and Send; Send completes, Encode kills C
--   12:03  found: the second crash of Encode
--   12:04  D claims Encode and Send, and dies at once: the second of Send is the first again
--   12:05  found: the third of Encode, which is paused
--
-- So machines that fail together, or a deployment that kills its workers, count as one crash of each kind. And a crash
-- whose worker's host has not come back (host_gone) is the host's: it counts later, if the host comes back, and never
-- otherwise. So machines that are taken away one after the other pause no kind.
--
-- Ends are known by the minute: an end in the minute of a crash counts as later, so a kind that runs often is paused up
-- to a minute later. A run may have been claimed but not begun when its worker died, so a kind can get crashes that
-- another kind caused. Therefore a call pauses one kind at most, the one with the most crashes. The others start again
-- at 0 as soon as one of their runs ends. A crash more than a day ago does not count.
--
-- It runs with its owner's rights, because a worker has no other right to pause. It waits for a lock for a second at
-- most, since recovery goes on after it. Needs stat_pkey: the planner would read all of stat, from its oldest row on,
-- and that of PostgreSQL 18 by another index. So there is an order, and no sort.
create function jobq.kinds_crashed(kinds text[], claimed timestamptz[], owners text[], source text)
    returns table (kind text, crashes integer)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
      set enable_seqscan = off set enable_sort = off set jit = off
  as $$
declare
  moment timestamptz := clock_timestamp();
  limit_crashes integer := (select s.quarantine_crashes from jobq.setting s);
  lost record;
  known jobq.kind;
  worst jobq.kind;
  reason text;
begin
  delete from jobq.kind k where k.paused_at is null and k.crashed_at < moment - interval '1 day';
  for lost in
    select l.kind, max(l.claimed_at) as claimed_at, bool_or(h.host is null) as lives,
        coalesce(array_agg(distinct h.host) filter (where h.host is not null), '{}') as gone
      from unnest(kinds, claimed, owners) as l(kind, claimed_at, owner)
      join (
        select o.owner, jobq.host_gone(o.owner) as host from (select distinct x from unnest(owners) x) as o(owner)
      ) h on h.owner = l.owner
      group by l.kind
      order by l.kind
  loop
    insert into jobq.kind (name) values (lost.kind) on conflict (name) do nothing;
    select k.* into known from jobq.kind k where k.name = lost.kind for update;
    if not found or known.paused_at is not null then -- a run that sleeps now may have deleted it: see run_suspend
      continue;
    end if;
    known := jobq.kind_crash(known, lost.claimed_at, lost.gone, lost.lives, known.crashed_at is null
      or (select true from jobq.stat s
        where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind
          and s.completed + s.failed + s.retried > s.lost
        order by s.minute limit 1)
      or exists (select from jobq.stat_delta s
        where s.minute >= date_trunc('minute', known.crashed_at) and s.kind = lost.kind
          and s.completed + s.failed + s.retried > s.lost));
    update jobq.kind k
      set crashes = known.crashes, crashed_at = known.crashed_at, gone_hosts = known.gone_hosts,
        gone_at = known.gone_at
      where k.name = lost.kind;
    if known.crashes > coalesce(worst.crashes, 0) then
      worst := known;
    end if;
  end loop;
  if limit_crashes = 0 or worst.crashes is null or worst.crashes < limit_crashes then
    return;
  end if;
  reason := format('quarantine: workers that ran it crashed %s times in a row', worst.crashes);
  update jobq.kind k set paused_at = moment, paused_by = 'jobq', pause_reason = reason where k.name = worst.name;
  perform jobq.audit_begin('jobq', 'kind_pause', worst.name, reason);
  insert into jobq.event (type, source, message)
    values ('quarantined', kinds_crashed.source,
        format('kind %s is paused: workers that ran it crashed %s times in a row', worst.name, worst.crashes));
  kind := worst.name;
  crashes := worst.crashes;
  return next;
end $$;
