-- Why a job does not run (docs/why.md). The functions are stable, so that they read
-- all tables with one snapshot, that of the statement that calls them. Locks
-- and sessions have no snapshots: they are read as they are at the moment.
set local lock_timeout = '5s';

-- why_session is what may be seen of a session of the server. PostgreSQL hides all but the role of other roles' sessions from
-- roles that are not in pg_read_all_stats.
create function jobq.why_session(pid integer) returns jsonb
  language sql stable
  as $$
    select jsonb_strip_nulls(jsonb_build_object('pid', a.pid, 'role', a.usename, 'application', nullif(a.application_name, ''),
        'state', a.state, 'since', a.xact_start, 'query', left(a.query, 200))
        - case when a.backend_start is null then array['query'] else '{}'::text[] end
        || jsonb_build_object('hidden', a.backend_start is null))
      from pg_catalog.pg_stat_activity a
      where a.pid = why_session.pid
  $$;

-- why_row_locked is the session that has locked a row or is changing it; null if there is none. A row's
-- xmax is the transaction that locked it last. It counts only while that transaction is open and
-- holds a lock on the row's table, too. If several transactions share a lock, xmax
-- is a number of another kind, and no session is found. A prepared transaction has no session.
create function jobq.why_row_locked(row_xmax xid, row_table oid) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(x.pid), (
          select jsonb_build_object('prepared', p.gid, 'role', p.owner, 'since', p.prepared)
            from pg_catalog.pg_prepared_xacts p where p.transaction = x.transactionid),
        jsonb_build_object('hidden', true))
      from pg_catalog.pg_locks x
      where x.locktype = 'transactionid' and x.granted and x.mode = 'ExclusiveLock' and x.transactionid = why_row_locked.row_xmax
        and exists (
          select from pg_catalog.pg_locks t
            where t.locktype = 'relation' and t.granted and t.virtualtransaction = x.virtualtransaction and t.relation = why_row_locked.row_table
              and t.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()))
      limit 1
  $$;

-- why_table_locked is a session that has locked, in one of these modes, a table that claims write to; null if there is none.
create function jobq.why_table_locked(modes text[]) returns jsonb
  language sql stable
  as $$
    select coalesce(jobq.why_session(l.pid), jsonb_build_object('hidden', true)) || jsonb_build_object('table', c.relname, 'mode', l.mode)
      from pg_catalog.pg_locks l
      join pg_catalog.pg_class c on c.oid = l.relation
      where l.locktype = 'relation' and l.granted and l.mode = any(why_table_locked.modes) and l.pid is distinct from pg_backend_pid()
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
        and c.relnamespace = (select p.relnamespace from pg_catalog.pg_class p where p.oid = 'jobq.pending'::regclass)
        and c.relname in ('pending', 'lease', 'run', 'queue')
      order by c.relname, l.pid
      limit 1
  $$;

-- why_janitor says whether a session holds the janitor's lock. A janitor behind a transaction pooler holds it only while it works.
-- A standby does not know of locks on its primary: then the answer is null.
create function jobq.why_janitor() returns jsonb
  language sql stable
  as $$
    select case when pg_is_in_recovery() then null else to_jsonb(exists (
      select from pg_catalog.pg_locks l
        where l.locktype = 'advisory' and l.granted and l.objid = 1 and l.objsubid = 2
          and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
          and l.classid::bigint = (
            select ('x' || left(md5('jobq advisory lock ' || n.nspname), 8))::bit(32)::bigint
              from pg_catalog.pg_class p
              join pg_catalog.pg_namespace n on n.oid = p.relnamespace
              where p.oid = 'jobq.pending'::regclass))) end
  $$;

-- why_before counts the jobs in a line before a place; the line is that of a partition key, or of jobs without one (''). It counts
-- from the place towards the head, because at the head there may be dead index entries of many claims, and stops at count_max.
-- Needs pending_claim_idx, and nothing else whatever the statistics say: without statistics, the planner would sort the whole line
-- (docs/decisions/0002).
create function jobq.why_before(line_queue text, line_key text, line_priority smallint, line_position bigint, count_max bigint) returns bigint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select count(*)
      from (select from jobq.pending p
        where p.queue = line_queue and p.partition_key = line_key and p.position is not null and (p.priority, p.position) < (line_priority, line_position)
        order by p.priority desc, p.position desc
        limit count_max) line
  $$;

-- key_held says whether a limit, a rate or an order of the keys keeps the jobs of a partition key from being claimed. That is so
-- if it is throttled, if the last claim that looked at the key found it full and no place has become free since, or if its head
-- still keeps the others waiting. It looks up the ten oldest places that the key holds. It is for people: a claim looks for
-- itself. Needs lane_pkey, lease_pkey, and what lane_next needs.
create function jobq.key_held(of_queue text, of_key text, key_limit integer, key_order text) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  lane record;
begin
  select x.full_limit, x.held_leases, x.held_slots, x.throttled_until into lane from jobq.lane x where x.queue = of_queue and x.key = of_key;
  if lane.throttled_until > statement_timestamp() then
    return true;
  elsif lane.full_limit is null then
    return false;
  elsif cardinality(lane.held_leases) >= key_limit then
    return not exists (
      select from unnest(lane.held_leases[:10], lane.held_slots[:10]) as h(lease, slot)
        where (select h.slot <> all(l.ended_slots) from jobq.lease l where l.id = h.lease limit 1) is not true);
  end if;
  return exists (select from jobq.lane_next(of_queue, of_key, key_order) n where n.waits is not null);
end $$;

-- line_heads is the first job of each line of a queue, and since when it could have run. The jobs of a queue form one line for
-- each partition key and priority. The first job of a line has waited longest, except for some that came back. Keys that are
-- paused, or that their limit, rate or order holds, are left out.
--
-- Example: a queue has jobs of two priorities without a key, and of the keys a, which is full, and b.
--
--   key  priority  position  since
--                9        17  11:58   the least urgent priority
--                0       501  12:00
--   b            0       430  11:30
--
-- Of jobs without a key it looks at the lines_max least urgent priorities. Of keys it looks at as many lines, in the order of the
-- index. If there may be more keys, it also looks at lines_max of those that may have a job to be claimed, the ones whose last
-- turn is longest ago, each at its most and least urgent priority. Keys that have jobs but no turn yet, because no claim has been
-- made since, are not among these. Paused keys do not count, up to five times lines_max: otherwise a few paused keys would hide
-- all others. So it costs the same however many jobs and keys there are. Needs pending_claim_idx, lane_turn_idx, paused_key_pkey,
-- and what key_held needs.
create function jobq.line_heads(of_queue text, lines_max integer)
  returns table (key text, priority smallint, "position" bigint, since timestamptz)
  language plpgsql stable rows 10
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  paused_max constant integer := 5 * lines_max;
  q record;
  head record;
  looked integer := 0;
  paused integer := 0;
  at_key text := '';
  at_priority integer := 32768;
  lane_key text;
  least_urgent smallint;
  held boolean;
begin
  while looked < lines_max loop
    select p.priority into least_urgent from jobq.pending p
      where p.queue = of_queue and p.partition_key = '' and p.position is not null and p.priority < at_priority
      order by p.priority desc, p.position desc limit 1;
    exit when not found;
    return query select '', p.priority, p.position, greatest(p.run_at, p.created_at)
      from jobq.pending p
      where p.queue = of_queue and p.partition_key = '' and p.position is not null and p.priority = least_urgent
      order by p.priority, p.position limit 1;
    at_priority := least_urgent;
    looked := looked + 1;
  end loop;
  select x.key_limit, x.key_order, x.key_rate_jobs into q from jobq.queue x where x.name = of_queue;
  looked := 0;
  at_priority := 32768; -- behind the line of jobs without a key
  loop
    select p.partition_key, p.priority, p.position, greatest(p.run_at, p.created_at) as since into head
      from jobq.pending p
      where p.queue = of_queue and p.position is not null and (p.partition_key, p.priority) > (at_key, at_priority)
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return;
    end if;
    exit when looked = lines_max;
    if head.partition_key <> at_key then
      at_key := head.partition_key;
      if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = at_key) then
        at_priority := 32768;
        paused := paused + 1;
        exit when paused = paused_max;
        continue;
      end if;
      held := (q.key_limit is not null or q.key_rate_jobs is not null) and jobq.key_held(of_queue, at_key, q.key_limit, q.key_order);
    end if;
    at_priority := head.priority;
    looked := looked + 1;
    if held then
      at_priority := 32768;
    else
      return query select head.partition_key::text, head.priority, head.position, head.since;
    end if;
  end loop;
  looked := 0;
  paused := 0;
  for lane_key in select l.key from jobq.lane l where l.queue = of_queue and l.turn is not null order by l.turn limit lines_max + paused_max loop
    if exists (select from jobq.paused_key k where k.queue = of_queue and k.key = lane_key) then -- and no claim has been made since
      paused := paused + 1;
      exit when paused = paused_max;
      continue;
    end if;
    exit when looked = lines_max;
    looked := looked + 1;
    continue when lane_key <= at_key; -- it was looked at
    least_urgent := null;
    loop
      select p.partition_key, p.priority, p.position, greatest(p.run_at, p.created_at) as since into head
        from jobq.pending p
        where p.queue = of_queue and p.partition_key = lane_key and p.position is not null and p.priority >= coalesce(least_urgent, -32768)
        order by p.priority, p.position limit 1;
      exit when not found;
      return query select head.partition_key::text, head.priority, head.position, head.since;
      exit when least_urgent is not null;
      select p.priority into least_urgent from jobq.pending p
        where p.queue = of_queue and p.partition_key = lane_key and p.position is not null
        order by p.priority desc, p.position desc limit 1;
      exit when least_urgent is null or least_urgent = head.priority;
    end loop;
  end loop;
end $$;

-- why_first is the first job of a lease that still runs; null if none does.
create function jobq.why_first(job_ids bigint[], ended_slots smallint[]) returns bigint
  language sql stable
  as $$
    select j.id from unnest(job_ids) with ordinality as j(id, slot) where j.slot <> all(ended_slots) order by j.slot limit 1
  $$;

-- why_kind is the kind of a running job, by its lease; null if its row is gone. If a kind has slots of its
-- own in a worker, each claim takes either jobs of this kind only, or none of it. So the kind of one job says
-- whether the jobs of the lease are in these slots. Needs run_id_idx of the lease's day.
create function jobq.why_kind(of_lease bigint, of_job bigint) returns text
  language sql stable
  as $$
    select r.kind from jobq.run r where r.lease_id = of_lease and r.id = of_job limit 1
  $$;

-- why_oldest is the first job of a lease that still runs, and its worker; empty if none does.
create function jobq.why_oldest(of_lease bigint) returns jsonb
  language sql stable
  as $$
    select coalesce((
      select jsonb_build_object('oldest', jobq.why_first(l.job_ids, l.ended_slots), 'oldest_since', l.claimed_at, 'oldest_worker', l.owner)
        from jobq.lease l where l.id = of_lease), '{}')
  $$;

-- why_key_runs are the running jobs of a partition key, as a claim counts them: the lane holds
-- what was claimed, and the leases say what has ended. Needs lane_pkey and lease_pkey.
create function jobq.why_key_runs(of_queue text, of_key text) returns bigint[]
  language sql stable
  as $$
    select coalesce(array_agg(l.job_ids[h.slot] order by l.claimed_at, l.job_ids[h.slot]), '{}')
      from jobq.lane x
      cross join lateral unnest(x.held_leases, x.held_slots) as h(lease, slot)
      join jobq.lease l on l.id = h.lease and h.slot <> all(l.ended_slots)
      where x.queue = of_queue and x.key = of_key
  $$;

-- why_turn is what is known about the turn of a job's key (lane_claim):
--
--   partition_key  the key of the job
--   keys_before    how many keys have their turn before it
--   keys_new       how many keys get their turn together with it, in an order that is not known yet, since their
--                  jobs came after the last claim
--   key_weight     the weight of the key, if it has one
--
-- Only hints tell of new keys (lane_hint). Hints also tell of lanes whose keys were paused since the last claim: these keep their
-- turns until the next claim, and do not count as before. Both numbers stop at keys_max + 1, and are left out if more than 10,000
-- hints of jobs, or 100 of pauses, would have to be read.
--
-- For a job without a key it says whether keys take turns with such jobs. If the queue has groups of keys, it says partition_key,
-- key_group and their weights, but neither number: turns of groups are not places in one line, since keys that come later may have
-- turns before it.
-- Needs queue_pkey, lane_pkey, lane_turn_idx, lane_hint_pkey, key_weight_pkey and paused_key_pkey only.
--
-- Example: the keys a, b and p have their turns. Since then, jobs of c and d have come, and p was paused. For a job of d, 2 keys
-- are before, and 1 is new.
create function jobq.why_turn(of_queue text, of_key text, keys_max bigint) returns jsonb
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
  as $$
declare
  hints_max constant bigint := 10000;
  pauses_max constant bigint := 100;
  own bigint := (select l.turn from jobq.lane l where l.queue = of_queue and l.key = of_key);
  hints bigint;
  hinted text[];
  pauses bigint;
  paused_before bigint;
  separator text := (select q.key_separator from jobq.queue q where q.name = of_queue);
  facts jsonb := jsonb_build_object('partition_key', of_key);
begin
  if of_key = '' then
    return jsonb_build_object('keys_take_turns',
      exists (select from jobq.lane l where l.queue = of_queue and l.turn is not null order by l.turn limit 1)
      or exists (select from jobq.lane_hint h where h.queue = of_queue and h.id > 0 order by h.id limit 1));
  end if;
  facts := facts || coalesce((select jsonb_build_object('key_weight', w.weight) from jobq.key_weight w where w.queue = of_queue and w.key = of_key), '{}');
  if separator is not null then
    return facts || jsonb_build_object('key_group', split_part(of_key, separator, 1)) || coalesce((
      select jsonb_build_object('key_group_weight', w.weight) from jobq.key_weight w where w.queue = of_queue and w.key = split_part(of_key, separator, 1)), '{}');
  end if;
  if own is null then
    select count(*), array_agg(distinct h.key) into hints, hinted
      from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id > 0 order by x.id limit hints_max + 1) h;
    if hints > hints_max or not coalesce(of_key = any(hinted), false) then
      return facts;
    end if;
  end if;
  own := coalesce(own, 9223372036854775807);
  select count(*), count(distinct h.key) filter (where
      (select l.turn from jobq.lane l where l.queue = of_queue and l.key = h.key) < own
      and exists (select from jobq.paused_key p where p.queue = of_queue and p.key = h.key)) -- it may go on already
    into pauses, paused_before
    from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id < 0 order by x.id limit pauses_max + 1) h;
  if pauses > pauses_max then
    return facts;
  end if;
  return facts || jsonb_build_object('keys_before_max', keys_max,
    'keys_before', (select least(count(*) - paused_before, keys_max + 1) from (
      select from jobq.lane l
        where l.queue = of_queue and l.turn is not null and l.turn < own
        order by l.turn desc limit keys_max + 1 + paused_before) before),
    'keys_new', (select count(*) from (
      select from unnest(hinted) as k(key)
        where k.key <> of_key and not exists (select from jobq.lane l where l.queue = of_queue and l.key = k.key and l.turn is not null)
          and not exists (select from jobq.paused_key p where p.queue = of_queue and p.key = k.key)
        limit keys_max + 1) new));
end $$;

-- why_waiting returns the reasons why a waiting job is not claimed: the conditions of JobClaim and queue_admit that do not hold,
-- and whether a live worker could claim the job.
--
-- - A scheduled job (queue_position null) has no place in the line yet. It gets only the reasons that hold whenever it becomes
--   due: not the limits of its queue, nor the slots of workers.
-- - In a queue with a limit, running jobs are counted as queue_admit counts them.
-- - If the job's kind has slots of its own in a worker, those count, otherwise the slots of the queue without the jobs of such
--   kinds. Each lease of such a worker is asked for its kind, with one look-up.
-- - A worker that has sent nothing for 30 seconds, which are three heartbeats, does not count as live.
-- - Jobs before this one are counted up to 10,000, whatever their kinds: otherwise it would read the whole line of a paused kind.
--   They are those of the same partition key. Keys take turns, so keys with an earlier turn are counted as well, up to 1,000.
--
-- Example: queue email is paused, and its only worker handles other kinds. It returns both reasons.
create function jobq.why_waiting(
  job_id bigint, job_queue text, job_kind text, job_key text, job_priority smallint, queue_position bigint, row_locked jsonb
) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  before_max constant bigint := 10000;
  keys_max constant bigint := 1000;
  q jobq.queue;
  paused_kind jobq.kind;
  paused_key jobq.paused_key;
  running bigint; -- where that is limited
  throttled_until timestamptz;
  key_runs bigint[]; -- where that is limited
  head_job bigint; -- which the job has to wait for, where its key has an order
  head_waits text;
  head_until timestamptz;
  key_throttled_until timestamptz;
  limited boolean; -- by a limit or a rate
  live bigint;
  able bigint;
  helpless bigint;
  room bigint; -- workers that have a free slot for the job
  earlier bigint; -- workers of an earlier version, which do not tell whether the kind has slots of its own
  kind_apart boolean; -- it has, in every worker that could claim the job
  oldest_lease bigint; -- of those in the slots that the job could have
  facts_of_workers jsonb;
  table_locked jsonb;
  found_one boolean := false;
  ahead bigint;
  place jsonb; -- in its line, and of its key among the others
begin
  select x.* into q from jobq.queue x where x.name = job_queue;
  if q.paused_at is not null then
    found_one := true;
    return query select 'queue_paused', jsonb_build_object('queue', job_queue, 'since', q.paused_at, 'by', q.paused_by, 'note', q.pause_reason);
  end if;
  select x.* into paused_kind from jobq.kind x where x.name = job_kind and x.paused_at is not null;
  if found then
    found_one := true;
    return query select 'kind_paused', jsonb_build_object('kind', job_kind, 'since', paused_kind.paused_at, 'by', paused_kind.paused_by,
      'note', paused_kind.pause_reason, 'crashes', nullif(paused_kind.crashes, 0));
  end if;
  select x.* into paused_key from jobq.paused_key x where x.queue = job_queue and x.key = job_key;
  if found then
    found_one := true;
    return query select 'key_paused', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'since', paused_key.paused_at, 'by', paused_key.paused_by,
      'note', paused_key.pause_reason);
  end if;

  table_locked := jobq.why_table_locked('{ShareLock,ShareRowExclusiveLock,ExclusiveLock}');
  if table_locked is not null then
    found_one := true;
    return query select 'table_locked', jsonb_build_object('session', table_locked);
  end if;
  if row_locked is not null then
    found_one := true;
    return query select 'row_locked', jsonb_build_object('session', row_locked);
  end if;

  with serving as materialized (
    select w.id, w.heartbeat_at, (coalesce(w.kind_slots ->> job_kind, w.queues ->> job_queue))::bigint as slots, w.kind_slots, w.kinds,
        w.draining or w.drain_requested_at is not null as draining,
        w.heartbeat_at < statement_timestamp() - interval '30 s' as silent,
        w.kinds && array[job_kind] as has_kind, nullif(w.programs -> job_kind ->> 'trouble', '') as trouble
      from jobq.worker w
      where w.queues ? job_queue
      limit 10000
  ), leases as (
    select l.id, l.owner, l.claimed_at, cardinality(l.job_ids) - cardinality(l.ended_slots) as held, s.kind_slots,
        case when s.kind_slots <> '{}' then jobq.why_kind(l.id, jobq.why_first(l.job_ids, l.ended_slots)) end as kind
      from jobq.lease l
      join serving s on s.id = l.owner
      where l.queue = job_queue and l.lost_at is null and cardinality(l.ended_slots) < cardinality(l.job_ids)
  ), leased as materialized (
    select l.owner, sum(l.held) as held, (array_agg(l.id order by l.claimed_at, l.id))[1] as oldest, min(l.claimed_at) as oldest_since
      from leases l
      where case when l.kind_slots ? job_kind then l.kind = job_kind else (l.kind_slots ? l.kind) is not true end
      group by l.owner
  ), lively as materialized (
    select s.*, coalesce(l.held, 0) as held, l.oldest, l.oldest_since from serving s left join leased l on l.owner = s.id
      where not s.silent and not s.draining
  ), able_ones as materialized (
    select l.* from lively l where l.has_kind and l.trouble is null
  )
  select (select count(*) from lively), (select count(*) from lively l where l.has_kind),
      (select count(*) from lively l where l.has_kind and l.trouble is not null),
      (select count(*) from able_ones a where a.kind_slots is not null and a.held < a.slots),
      (select count(*) from able_ones a where a.kind_slots is null),
      (select bool_and(a.kind_slots ? job_kind) from able_ones a),
      (select a.oldest from able_ones a where a.oldest is not null order by a.oldest_since, a.oldest limit 1),
      jsonb_build_object(
        'draining', (select count(*) from serving s where s.draining and not s.silent),
        'silent', (select count(*) from serving s where s.silent),
        'heard_at', (select max(s.heartbeat_at) from serving s),
        'kinds', (select coalesce(jsonb_agg(k.kind order by k.kind), '[]') from (
          select distinct u.kind from lively l cross join lateral unnest(l.kinds) as u(kind) order by u.kind limit 20) k),
        'kinds_total', (select count(distinct u.kind) from lively l cross join lateral unnest(l.kinds) as u(kind)),
        'trouble', (select l.trouble from lively l where l.has_kind and l.trouble is not null order by l.id limit 1),
        'worker', (select l.id from lively l where l.has_kind and l.trouble is not null order by l.id limit 1),
        'slots', (select sum(a.slots) from able_ones a),
        'held', (select sum(a.held) from able_ones a))
    into live, able, helpless, room, earlier, kind_apart, oldest_lease, facts_of_workers;
  case
    when live = 0 then
      found_one := true;
      return query select 'no_worker', jsonb_build_object('queue', job_queue, 'silent', facts_of_workers -> 'silent',
        'draining', facts_of_workers -> 'draining', 'heard_at', facts_of_workers -> 'heard_at');
    when able = 0 then
      found_one := true;
      return query select 'no_worker_of_kind', jsonb_build_object('queue', job_queue, 'kind', job_kind, 'workers', live,
        'kinds', facts_of_workers -> 'kinds', 'kinds_total', facts_of_workers -> 'kinds_total');
    when helpless = able then
      found_one := true;
      return query select 'kind_in_trouble', jsonb_build_object('kind', job_kind, 'workers', helpless, 'worker', facts_of_workers -> 'worker',
        'error', facts_of_workers -> 'trouble');
    else null; -- some could claim it
  end case;
  if queue_position is null then
    return;
  end if;
  if q.max_running is not null then
    select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) into running from jobq.lease l where l.queue = job_queue;
  end if;
  if q.key_limit is not null and job_key <> '' then
    key_runs := jobq.why_key_runs(job_queue, job_key);
  end if;
  if q.key_order is not null and job_key <> '' then
    select n.job_id, n.waits, n.waits_until into head_job, head_waits, head_until
      from (
        select key_runs[1] as job_id, 'running' as waits, null::timestamptz as waits_until where cardinality(key_runs) > 0
        union all
        select * from jobq.lane_next(job_queue, job_key, q.key_order) where cardinality(key_runs) = 0
      ) n
      where n.job_id <> why_waiting.job_id;
  end if;
  throttled_until := jobq.throttled_until(job_queue, q.rate_jobs, q.rate_period, q.rate_burst);
  key_throttled_until := jobq.key_throttled_until(job_queue, job_key, q.key_rate_jobs, q.key_rate_period, q.key_rate_burst);
  limited := coalesce(running >= q.max_running, false) or coalesce(cardinality(key_runs) >= q.key_limit, false) or head_job is not null
    or throttled_until is not null or key_throttled_until is not null;
  if found_one and not limited then -- its place in the line is not what it waits for
    return;
  end if;
  ahead := jobq.why_before(job_queue, job_key, job_priority, queue_position, before_max + 1);
  place := jobq.why_turn(job_queue, job_key, keys_max) || jsonb_build_object('before', ahead, 'before_max', before_max);
  if running >= q.max_running then
    return query select 'queue_limit', jsonb_build_object('queue', job_queue, 'running', running, 'limit', q.max_running)
      || place || jobq.why_oldest((
        select l.id from jobq.lease l
          where l.queue = job_queue and cardinality(l.ended_slots) < cardinality(l.job_ids) order by l.claimed_at, l.id limit 1));
  end if;
  if head_job is not null then
    return query select 'key_head', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'head', head_job,
      'head_state', coalesce(head_waits, 'available'), 'until', head_until, 'before', ahead, 'before_max', before_max);
  elsif cardinality(key_runs) >= q.key_limit then
    return query select 'key_limit', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'running', cardinality(key_runs),
      'limit', q.key_limit, 'holders', key_runs[:20], 'before', ahead, 'before_max', before_max);
  end if;
  if key_throttled_until is not null then
    return query select 'key_rate', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'until', key_throttled_until,
      'rate', jsonb_build_object('jobs', q.key_rate_jobs, 'period_ns', (extract(epoch from q.key_rate_period) * 1000000000)::bigint,
        'burst', coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period))), 'before', ahead, 'before_max', before_max);
  end if;
  if throttled_until is not null then
    return query select 'queue_rate', jsonb_build_object('queue', job_queue, 'until', throttled_until,
      'rate', jsonb_build_object('jobs', q.rate_jobs, 'period_ns', (extract(epoch from q.rate_period) * 1000000000)::bigint,
        'burst', coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period)))) || place;
  end if;
  if found_one then
    return;
  end if;
  if room = 0 and earlier = 0 then
    return query select case when kind_apart then 'kind_full' else 'workers_full' end,
      jsonb_build_object('queue', job_queue, 'kind', case when kind_apart then job_kind end, 'workers', able - helpless,
          'slots', facts_of_workers -> 'slots', 'held', facts_of_workers -> 'held')
        || place || jobq.why_oldest(oldest_lease);
  elsif not limited then
    return query select 'next_in_line', jsonb_build_object('queue', job_queue, 'workers', able - helpless,
      'workers_unknown', case when room = 0 then earlier end) || place;
  end if;
end $$;

-- why_running returns the reasons why a claimed job is not claimed again.
create function jobq.why_running(job_id bigint, token bigint, job_queue text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  l record;
  w record;
  whole jsonb;
  locked jsonb;
begin
  select x.owner, x.claimed_at, x.expires_at, x.lost_at, x.expires_at + coalesce(q.stale_grace, interval '0') as reaped_from,
      array_position(x.job_ids, why_running.job_id) > x.begun as unbegun
    into l
    from jobq.lease x
    left join jobq.queue q on q.name = job_queue
    where x.id = token;
  if not found then -- a row without a lease is not of jobq's making
    return query select 'no_lease', jsonb_build_object('lease', token);
    return;
  end if;
  select x.heartbeat_at, x.draining or x.drain_requested_at is not null as draining into w from jobq.worker x where x.id = l.owner;
  whole := jsonb_build_object('worker', l.owner, 'since', l.claimed_at, 'until', l.expires_at,
    'heard_at', w.heartbeat_at, 'worker_draining', coalesce(w.draining, false))
    || case when l.unbegun then '{"not_begun": true}' else '{}'::jsonb end;
  if l.lost_at is not null or l.expires_at < statement_timestamp() then
    whole := whole || jsonb_build_object('reaped_from', l.reaped_from, 'lost_at', l.lost_at, 'janitor', jobq.why_janitor());
    return query select 'lease_expired', whole;
    select jobq.why_row_locked(r.xmax, r.tableoid) into locked from jobq.run r where r.id = why_running.job_id and r.lease_id = token;
    if locked is not null then
      return query select 'row_locked', jsonb_build_object('session', locked);
    end if;
  else
    return query select 'running', whole || coalesce((
      select jsonb_build_object('progressed_at', p.progressed_at, 'percent', p.percent, 'stage', p.stage, 'message', p.message)
        from jobq.progress p where p.job_id = why_running.job_id and p.lease_id = token), '{}');
  end if;
end $$;

-- why_ended returns the reason why a job that has ended does not run again, and what would prevent a requeue. It looks up the
-- job's row by its id, and its unique key by the primary key, without a join. Without statistics, the planner expects very many
-- rows for any id, and might read all keys, or the index of the times until which keys are kept: so it asks for (kind, key) alone
-- first. A job that plainly succeeded may have no row any more.
-- Needs run_id_idx, payload_pkey and unique_key_pkey only.
create function jobq.why_ended(job_id bigint, ended jsonb) returns jsonb
  language sql stable
  set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select ended || jsonb_build_object(
        'args_gone', coalesce(r.args_apart, false) and not exists (select from jobq.payload a where a.job_id = why_ended.job_id),
        'key_holder', (select k.job_id from (select x.* from jobq.unique_key x where x.kind = r.kind and x.key = r.unique_key offset 0) k
          where k.job_id <> why_ended.job_id and (not k.job_over or k.kept_until > statement_timestamp())),
        'key_until', (select k.kept_until from (select x.* from jobq.unique_key x where x.kind = r.kind and x.key = r.unique_key offset 0) k
          where k.job_over and k.kept_until > statement_timestamp()))
      from (select) job
      left join lateral (select x.kind, x.unique_key, x.args_apart from jobq.run x where x.id = why_ended.job_id limit 1) r on true
  $$;

-- why says why a job is not running, or where it is: one row for each reason, with its facts. Each reason is enough by itself.
-- docs/sql.md lists the reasons. It locks and changes nothing, so that a viewer may call it. It does not wait for a table that
-- somebody has locked even for readers: that lock is then the only reason that it can give.
create function jobq.why(id bigint) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  job record;
  acted record;
  last_run record;
  suspended boolean := false;
  locked jsonb;
  place bigint;
  suspect boolean;
  crashes integer;
  last_id bigint;
begin
  if id is null or id < 1 then
    raise sqlstate 'JQ001' using message = format('id must be a positive number, not %s', coalesce(why.id::text, 'null'));
  end if;
  locked := jobq.why_table_locked('{AccessExclusiveLock}');
  if locked is not null then
    return query select 'table_locked', jsonb_build_object('session', locked);
    return;
  end if;
  select j.state::text as state, j.queue, j.kind, j.priority, j.attempts, j.max_attempts, j.lease_token, j.run_at, j.finished_at, j.lease_owner,
      j.cancel_requested_at, j.last_error, coalesce(j.partition_key, '') as partition_key
    into job from jobq.job j where j.id = why.id;
  if not found then
    select a.id as audit, a.at, a.actor, a.note, j.state_after into acted
      from (select x.audit_id, x.state_after from jobq.audit_job x where x.job_id = why.id order by x.audit_id desc limit 1) j
      cross join lateral (select x.id, x.at, x.actor, x.note from jobq.audit x where x.id = j.audit_id limit 1) a;
    if acted.state_after = 'deleted' then
      return query select 'deleted', jsonb_build_object('since', acted.at, 'by', acted.actor, 'note', acted.note, 'audit', acted.audit);
      return;
    end if;
    select case when s.is_called then s.last_value else s.last_value - 1 end into last_id from jobq.job_id_seq s;
    return query select case when why.id > last_id then 'unknown' else 'gone' end, jsonb_build_object('last_id', last_id,
      'retention_seconds', (select extract(epoch from s.finished_retention)::bigint from jobq.setting s));
    return;
  end if;

  if job.state = 'waiting' then
    -- Those that are over, and for which it waits all the same: until they are requeued, or
    -- until a janitor has looked at them.
    return query select 'waits_for_jobs', jsonb_build_object(
        'parents', (
          select jsonb_agg(jsonb_build_object('id', d.parent, 'state', (select j.state from jobq.job j where j.id = d.parent limit 1), 'on_failure', d.on_failure) order by d.parent)
            from (select x.parent, x.on_failure from jobq.dependency x where x.child = why.id and x.parent_state is null order by x.parent limit 10) d),
        'parents_open', (select count(*) from (select from jobq.dependency x where x.child = why.id and x.parent_state is null limit 10001) d),
        'janitor', jobq.why_janitor());
    return;
  end if;
  if job.state in ('scheduled', 'available') then
    select p.position, jobq.why_row_locked(p.xmax, p.tableoid), p.crashes >= least(2, p.max_attempts - p.attempts::integer), p.crashes
      into place, locked, suspect, crashes from jobq.pending p where p.id = why.id;
    if job.state = 'scheduled' and job.run_at > statement_timestamp() then
      return query select w.reason, w.facts from jobq.why_suspended(why.id, job.lease_token, job.run_at) w;
      suspended := found;
    end if;
    if job.state = 'scheduled' and not suspended then
      select a.outcome::text as outcome, a.finished_at into last_run
        from jobq.attempt a where a.job_id = why.id order by a.lease_token desc, a.finished_at desc limit 1;
      return query select case when suspect then 'alone' when job.run_at <= statement_timestamp() then 'due' when job.attempts > 0 and coalesce(last_run.outcome, '') not in ('snoozed', 'unreadable') then 'retry' else 'scheduled' end,
        jsonb_build_object('until', job.run_at, 'attempts', job.attempts, 'max_attempts', job.max_attempts, 'error', job.last_error,
          'outcome', last_run.outcome, 'outcome_at', last_run.finished_at, 'janitor', jobq.why_janitor(),
          'crashes', case when suspect then crashes end, 'crashes_alone', case when suspect and crashes > 2 then crashes - 2 end);
    end if;
    return query select w.reason, w.facts from jobq.why_waiting(why.id, job.queue, job.kind, job.partition_key, job.priority, place, locked) w;
    return;
  end if;

  -- Who has cancelled it, if that is in the audit: of its last 100 actions, the one that gave
  -- this end to a job that waited, or that asked the worker of this run to stop. The limits
  -- make the planner look each action up by its key, whatever it knows of the tables.
  select a.actor, a.note into acted
    from (select x.audit_id, x.lease_token, x.version, x.state_before from jobq.audit_job x
      where x.job_id = why.id order by x.audit_id desc limit 100) j
    cross join lateral (select x.actor, x.note, x.action from jobq.audit x where x.id = j.audit_id limit 1) a
    where a.action = 'cancel' and (j.version = job.finished_at or j.state_before = 'running' and j.lease_token = job.lease_token)
    order by j.audit_id desc
    limit 1;
  if job.state = 'running' then
    return query select w.reason, w.facts from jobq.why_running(why.id, job.lease_token, job.queue) w;
    if job.cancel_requested_at is not null then
      return query select 'cancel_requested', jsonb_build_object('since', job.cancel_requested_at, 'by', acted.actor, 'note', acted.note);
    end if;
    return;
  end if;
  return query select job.state, jobq.why_ended(why.id, jsonb_build_object('since', job.finished_at, 'worker', job.lease_owner)
    || case job.state
      when 'failed' then jsonb_build_object('attempts', job.attempts, 'max_attempts', job.max_attempts, 'error', job.last_error)
      when 'cancelled' then jsonb_build_object('by', acted.actor, 'note', acted.note, 'error', job.last_error)
      else '{}'
    end);
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.why_session, jobq.why_row_locked, jobq.why_table_locked, jobq.why_janitor, jobq.why_before, jobq.key_held, jobq.line_heads, jobq.why_first, jobq.why_kind, jobq.why_oldest, jobq.why_key_runs, jobq.why_turn, jobq.why_waiting, jobq.why_running,
  jobq.why_ended, jobq.why
  from public;
