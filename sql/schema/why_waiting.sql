-- Why a waiting job is not claimed, for jobq.why: the conditions of JobClaim and queue_admit that do not hold, and
-- whether a live worker could claim the job.

-- why_first is the first job of a lease that still runs; null if none does.
create function jobq.why_first(job_ids bigint[], ended_slots smallint[]) returns bigint
  language sql stable
  as $$
    select j.id from unnest(job_ids) with ordinality as j(id, slot) where j.slot <> all(ended_slots)
        order by j.slot limit 1
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
      select jsonb_build_object('oldest', jobq.why_first(l.job_ids, l.ended_slots), 'oldest_since', l.claimed_at,
          'oldest_worker', l.owner)
        from jobq.lease l where l.id = of_lease), '{}')
  $$;

-- why_turn is what is known about the turn of a job's key (lane_claim):
--
--   partition_key  the key of the job
--   keys_before    how many keys have their turn before it
--   keys_new       how many keys get their turn together with it, in an order that is not known yet, since their
--                  jobs came after the last claim
--   key_weight     the weight of the key, if it has one
--
-- Only hints tell of new keys (lane_hint). Hints also tell of lanes whose keys were paused since the last claim: these
-- keep their turns until the next claim, and do not count as before. Both numbers stop at keys_max + 1, and are left
-- out if more than 10,000 hints of jobs, or 100 of pauses, would have to be read.
--
-- For a job without a key it says whether keys take turns with such jobs. If the queue has groups of keys, it says
-- partition_key, key_group and their weights, but neither number: turns of groups are not places in one line, since
-- keys that come later may have turns before it. Needs queue_pkey, lane_pkey, lane_turn_idx, lane_hint_pkey,
-- key_weight_pkey and paused_key_pkey only.
--
-- Example: the keys a, b and p have their turns. Since then, jobs of c and d have come, and p was paused. For a job of
-- d, 2 keys are before, and 1 is new.
create function jobq.why_turn(of_queue text, of_key text, keys_max bigint) returns jsonb
  language plpgsql stable
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
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
  facts := facts || coalesce((select jsonb_build_object('key_weight', w.weight) from jobq.key_weight w
      where w.queue = of_queue and w.key = of_key), '{}');
  if separator is not null then
    return facts || jsonb_build_object('key_group', split_part(of_key, separator, 1)) || coalesce((
      select jsonb_build_object('key_group_weight', w.weight) from jobq.key_weight w
          where w.queue = of_queue and w.key = split_part(of_key, separator, 1)), '{}');
  end if;
  if own is null then
    select count(*), array_agg(distinct h.key) into hints, hinted
      from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id > 0
          order by x.id limit hints_max + 1) h;
    if hints > hints_max or not coalesce(of_key = any(hinted), false) then
      return facts;
    end if;
  end if;
  own := coalesce(own, 9223372036854775807);
  select count(*), count(distinct h.key) filter (where
      (select l.turn from jobq.lane l where l.queue = of_queue and l.key = h.key) < own
      and exists (select from jobq.paused_key p where p.queue = of_queue and p.key = h.key)) -- it may go on already
    into pauses, paused_before
    from (select x.key from jobq.lane_hint x where x.queue = of_queue and x.id < 0
        order by x.id limit pauses_max + 1) h;
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
        where k.key <> of_key and not exists (select from jobq.lane l where l.queue = of_queue and l.key = k.key
            and l.turn is not null)
          and not exists (select from jobq.paused_key p where p.queue = of_queue and p.key = k.key)
        limit keys_max + 1) new));
end $$;

-- why_stopped returns the pauses and locks because of which nobody claims a job, whatever its place in the line.
create function jobq.why_stopped(job_queue text, job_kind text, job_key text, row_locked jsonb)
  returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  table_locked jsonb := jobq.why_table_locked('{ShareLock,ShareRowExclusiveLock,ExclusiveLock}');
begin
  return query
    select 'queue_paused', jsonb_build_object('queue', job_queue, 'since', q.paused_at, 'by', q.paused_by, 'note',
        q.pause_reason)
      from jobq.queue q where q.name = job_queue and q.paused_at is not null;
  return query
    select 'kind_paused', jsonb_build_object('kind', job_kind, 'since', k.paused_at, 'by', k.paused_by, 'note',
        k.pause_reason, 'crashes', nullif(k.crashes, 0))
      from jobq.kind k where k.name = job_kind and k.paused_at is not null;
  return query
    select 'key_paused', jsonb_build_object('queue', job_queue, 'partition_key', job_key, 'since', k.paused_at, 'by',
        k.paused_by, 'note', k.pause_reason)
      from jobq.paused_key k where k.queue = job_queue and k.key = job_key;
  return query select 'table_locked', jsonb_build_object('session', table_locked) where table_locked is not null;
  return query select 'row_locked', jsonb_build_object('session', row_locked) where row_locked is not null;
end $$;

-- why_workers returns the workers of a queue, 10,000 at most, and what each of them says about jobs of a kind. Its
-- state is
--
--   silent    it has sent nothing for 30 seconds, which are three heartbeats
--   draining  it takes no more jobs
--   lacking   it does not have the kind
--   held      it has the kind, and somebody holds its host
--   troubled  it has the kind, and cannot start it now
--   able      none of these
--
-- slots are those that a job of the kind could have: the kind's own slots, if it has some in this worker (own_slots),
-- otherwise those of the queue, without the jobs of kinds with slots of their own. own_slots is null if the worker is
-- of an earlier version, which does not tell. held is how many jobs an able worker has in these slots, and oldest their
-- first lease. Each lease of a worker in which some kind has slots of its own is asked for its kind, with one look-up.
create function jobq.why_workers(job_queue text, job_kind text)
  returns table (id text, heartbeat_at timestamptz, kinds text[], trouble text, state text, own_slots boolean,
    slots bigint, held bigint, oldest bigint, oldest_since timestamptz, host text)
  language plpgsql stable
  as $$
begin
  return query
    with serving as materialized (
      select w.id, w.hostname, w.heartbeat_at, w.kinds, w.kind_slots, w.programs -> job_kind ->> 'trouble' as trouble,
          coalesce(w.kind_slots ->> job_kind, w.queues ->> job_queue)::bigint as slots,
          case
            when w.heartbeat_at < statement_timestamp() - interval '30 s' then 'silent'
            when w.draining or w.drain_requested_at is not null then 'draining'
            when not w.kinds && array[job_kind] then 'lacking'
            when w.hostname = any(array(select h.host from jobq.held_host h)) then 'held' -- read once for all workers
            when w.programs -> job_kind ->> 'trouble' <> '' then 'troubled'
            else 'able'
          end as state
        from jobq.worker w
        where w.queues ? job_queue
        limit 10000
    ), leases as (
      select l.id, l.owner, l.claimed_at, cardinality(l.job_ids) - cardinality(l.ended_slots) as held, s.kind_slots,
          case when s.kind_slots <> '{}' then jobq.why_kind(l.id, jobq.why_first(l.job_ids, l.ended_slots)) end as kind
        from jobq.lease l
        join serving s on s.id = l.owner
        where l.queue = job_queue and l.lost_at is null and cardinality(l.ended_slots) < cardinality(l.job_ids)
          and s.state = 'able'
    ), leased as (
      select l.owner, sum(l.held) as held, (array_agg(l.id order by l.claimed_at, l.id))[1] as oldest,
          min(l.claimed_at) as oldest_since
        from leases l
        where case when l.kind_slots ? job_kind then l.kind = job_kind else (l.kind_slots ? l.kind) is not true end
        group by l.owner
    )
    select s.id, s.heartbeat_at, s.kinds, s.trouble, s.state, s.kind_slots ? job_kind, s.slots, coalesce(l.held, 0),
        l.oldest, l.oldest_since, s.hostname
      from serving s
      left join leased l on l.owner = s.id;
end $$;

-- why_served says whether a live worker could claim a job of this kind now. It could, or may, if the reason is
-- next_in_line; otherwise the reason is why none could.
create function jobq.why_served(job_queue text, job_kind text, out reason text, out facts jsonb)
  language plpgsql stable
  as $$
declare
  w record;
begin
  select count(*) filter (where x.state = 'silent') as silent, count(*) filter (where x.state = 'draining') as draining,
      count(*) filter (where x.state in ('lacking', 'held', 'troubled', 'able')) as live,
      count(*) filter (where x.state = 'troubled') as troubled, count(*) filter (where x.state = 'able') as able,
      count(*) filter (where x.state = 'held') as on_held_hosts,
      min(x.host) filter (where x.state = 'held') as held_host,
      max(x.heartbeat_at) as heard_at,
      (array_agg(x.id order by x.id) filter (where x.state = 'troubled'))[1] as troubled_worker,
      (array_agg(x.trouble order by x.id) filter (where x.state = 'troubled'))[1] as trouble,
      coalesce(bool_or(x.held < x.slots) filter (where x.state = 'able' and x.own_slots is not null), false) as room,
      count(*) filter (where x.state = 'able' and x.own_slots is null) as untold,
      bool_and(x.own_slots) filter (where x.state = 'able') as own_slots,
      sum(x.slots) filter (where x.state = 'able') as slots, sum(x.held) filter (where x.state = 'able') as held,
      (array_agg(x.oldest order by x.oldest_since, x.oldest))[1] as oldest
    into w
    from jobq.why_workers(job_queue, job_kind) x;
  if w.live = 0 then
    reason := 'no_worker';
    facts := jsonb_build_object('queue', job_queue, 'silent', w.silent, 'draining', w.draining, 'heard_at', w.heard_at);
  elsif w.able + w.troubled + w.on_held_hosts = 0 then
    reason := 'no_worker_of_kind';
    select jsonb_build_object('queue', job_queue, 'kind', job_kind, 'workers', w.live, 'kinds_total', count(*), 'kinds',
        coalesce((array_agg(k.kind order by k.kind))[:20], '{}'))
      into facts
      from (select distinct u.kind from jobq.why_workers(job_queue, job_kind) x cross join unnest(x.kinds) as u(kind)
          where x.state = 'lacking') k;
  elsif w.able + w.troubled = 0 then
    reason := 'workers_held';
    select jsonb_build_object('queue', job_queue, 'kind', job_kind, 'workers', w.on_held_hosts, 'host', h.host, 'since',
        h.held_at, 'by', h.held_by, 'note', h.hold_reason)
      into facts
      from jobq.held_host h where h.host = w.held_host;
  elsif w.able = 0 then
    reason := 'kind_in_trouble';
    facts := jsonb_build_object('kind', job_kind, 'workers', w.troubled, 'worker', w.troubled_worker, 'error',
        w.trouble);
  elsif w.room or w.untold > 0 then
    reason := 'next_in_line';
    facts := jsonb_build_object('queue', job_queue, 'workers', w.able, 'workers_unknown',
        case when not w.room then w.untold end);
  else
    reason := case when w.own_slots then 'kind_full' else 'workers_full' end;
    facts := jsonb_build_object('queue', job_queue, 'kind', case when w.own_slots then job_kind end, 'workers', w.able,
        'slots', w.slots, 'held', w.held) || jobq.why_oldest(w.oldest);
  end if;
end $$;

-- why_rate is how a rate is told, with its burst.
create function jobq.why_rate(jobs integer, period interval, burst integer) returns jsonb
  language sql stable
  return jsonb_build_object('jobs', jobs, 'period_ns', (extract(epoch from period) * 1000000000)::bigint, 'burst',
      coalesce(burst, jobq.rate_burst_default(jobs, period)));

-- why_key_limits returns what the order, the limit and the rate of its key have against a job: the job that the key
-- waits for, or those that run, and when its next job may start.
create function jobq.why_key_limits(job_id bigint, q jobq.queue, job_key text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  -- null: nothing limits them, so the key has no order either
  running bigint[] := case when q.key_limit is not null and job_key <> '' then jobq.why_key_runs(q.name, job_key) end;
begin
  return query
    select 'key_head', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'head', h.job_id, 'head_state',
        coalesce(h.waits, 'available'), 'until', h.waits_until)
      from (
        select running[1] as job_id, 'running' as waits, null::timestamptz as waits_until where running <> '{}'
        union all
        select n.job_id, n.waits, n.waits_until from jobq.lane_next(q.name, job_key, q.key_order) n where running = '{}'
      ) h
      where q.key_order is not null and h.job_id <> why_key_limits.job_id;
  if not found then
    return query
      select 'key_limit', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'running', cardinality(running),
          'limit', q.key_limit, 'holders', running[:20])
        where cardinality(running) >= q.key_limit;
  end if;
  return query
    select 'key_rate', jsonb_build_object('queue', q.name, 'partition_key', job_key, 'until', t.until, 'rate',
        jobq.why_rate(q.key_rate_jobs, q.key_rate_period, q.key_rate_burst))
      from jobq.key_throttled_until(q.name, job_key, q.key_rate_jobs, q.key_rate_period, q.key_rate_burst) t(until)
      where t.until is not null;
end $$;

-- why_limits returns what the limits and rates of its queue and key have against a job. Jobs that run are counted as
-- queue_admit counts them.
create function jobq.why_limits(job_id bigint, job_queue text, job_key text) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  q jobq.queue;
begin
  select x.* into q from jobq.queue x where x.name = job_queue;
  return query
    select 'queue_limit', jsonb_build_object('queue', job_queue, 'running', r.jobs, 'limit', q.max_running)
        || jobq.why_oldest((select l.id from jobq.lease l
          where l.queue = job_queue and cardinality(l.ended_slots) < cardinality(l.job_ids)
          order by l.claimed_at, l.id limit 1))
      from (select sum(cardinality(l.job_ids) - cardinality(l.ended_slots)) as jobs
        from jobq.lease l where l.queue = job_queue and q.max_running is not null) r
      where r.jobs >= q.max_running;
  return query select k.reason, k.facts from jobq.why_key_limits(job_id, q, job_key) k;
  return query
    select 'queue_rate', jsonb_build_object('queue', job_queue, 'until', t.until, 'rate',
        jobq.why_rate(q.rate_jobs, q.rate_period, q.rate_burst))
      from jobq.throttled_until(job_queue, q.rate_jobs, q.rate_period, q.rate_burst) t(until)
      where t.until is not null;
end $$;

-- why_waiting returns the reasons why a waiting job is not claimed.
--
-- A scheduled job (queue_position null) has no place in the line yet. It gets only the reasons that hold whenever it
-- becomes due: not the limits of its queue, nor the slots of workers. Nor does a job that is stopped wait for its place
-- in the line, unless a limit holds as well.
--
-- Jobs before this one are counted up to 10,000, whatever their kinds: otherwise it would read the whole line of a
-- paused kind. They are those of the same partition key. Keys take turns, so keys with an earlier turn are counted as
-- well, up to 1,000, except for a job that its own key holds.
--
-- Example: queue email is paused, and its only worker handles other kinds. It returns both reasons.
create function jobq.why_waiting(
  job_id bigint, job_queue text, job_kind text, job_key text, job_priority smallint, queue_position bigint,
      row_locked jsonb
) returns table (reason text, facts jsonb)
  language plpgsql stable
  as $$
declare
  before_max constant bigint := 10000;
  keys_max constant bigint := 1000;
  stopped boolean;
  workers record;
begin
  return query select s.reason, s.facts from jobq.why_stopped(job_queue, job_kind, job_key, row_locked) s;
  stopped := found;
  select s.reason, s.facts into workers from jobq.why_served(job_queue, job_kind) s;
  if workers.reason in ('no_worker', 'no_worker_of_kind', 'workers_held', 'kind_in_trouble') then
    stopped := true;
    return query select workers.reason, workers.facts;
  end if;
  if queue_position is null then
    return;
  end if;
  return query
    with limits as materialized (
      select l.reason, l.facts from jobq.why_limits(job_id, job_queue, job_key) l
    ), reasons as (
      select l.reason, l.facts from limits l
      union all
      select workers.reason, workers.facts
        where not stopped and (workers.reason <> 'next_in_line' or not exists (select from limits))
    )
    -- The place in the line is the same for each reason: it is looked for once, and only if there is one.
    select r.reason, r.facts
        || (select jsonb_build_object('before', jobq.why_before(job_queue, job_key, job_priority, queue_position,
            before_max + 1), 'before_max', before_max))
        || case when r.reason not in ('key_head', 'key_limit', 'key_rate')
            then (select jobq.why_turn(job_queue, job_key, keys_max)) else '{}' end
      from reasons r;
end $$;
