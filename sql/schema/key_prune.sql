-- What the janitor clears away of partition keys.

-- lane_prune does for queues that nobody claims from what claims do for the others: it takes hints, and deletes lanes
-- of which nothing waits or runs. If it has found no lane for a day, each time that it looked, it deletes the row '':
-- then workers claim from the queue as from one that never had keys.
--
-- Each call looks at up to row_count hints and up to row_count lanes of one queue: of after_queue behind after_key and
-- after_hint, or of the next queue if after_key is ''. It returns where it has ended; last_queue is null after the last
-- queue. It skips a queue while a claim has its turn. Needs lane_pkey, lane_hint_pkey, paused_key_pkey, key_group_pkey,
-- pending_claim_idx and lease_pkey only.
create function jobq.lane_prune(after_queue text, after_key text, after_hint bigint, row_count integer)
  returns table (last_queue text, last_key text, last_hint bigint)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
  as $$
declare
  hints integer;
  readied boolean;
  lanes integer;
begin
  last_queue := after_queue;
  last_key := '';
  last_hint := 0;
  if after_key = '' then
    last_queue := least(
      (select x.queue from jobq.lane x where x.queue > after_queue order by x.queue, x.key limit 1),
      (select x.queue from jobq.lane_hint x where x.queue > after_queue order by x.queue, x.id limit 1));
  end if;
  if last_queue is null or not jobq.turn_take('queue ' || last_queue, 25) then -- as queue_admit
    return next;
    return;
  end if;
  perform jobq.lane_pause(last_queue);
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.queue = last_queue and h.id = any(array(
        select x.id from jobq.lane_hint x
          where x.queue = last_queue and x.id > case when after_key = '' then 0 else after_hint end
          order by x.id limit row_count for update skip locked))
      returning h.id, h.key
  ), due as materialized (
    select e.key
      from (select x.key from hints_taken x group by x.key) e
      -- asked once
      where (select p.key from jobq.paused_key p where p.queue = last_queue order by p.key limit 1) is null
        or (select p.key from jobq.paused_key p where p.queue = last_queue and p.key = e.key limit 1) is null
  ), hinted as (
    insert into jobq.lane as l (queue, key, turn, hinted)
      select last_queue, k.key, k.turn, k.turn
        from (select p.key, nextval('jobq.lane_turn_seq') as turn from due p) k
      on conflict on constraint lane_pkey do update
        set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end,
            full_limit = null, hinted = excluded.hinted
        where l.turn is null and l.throttled_until is null or l.looks <> '{}'
      returning l.turn in (l.hinted, l.due_turn) as readied
  )
  select e.hints, coalesce(e.last, after_hint), (select bool_or(h.readied) from hinted h) into hints, last_hint, readied
    from (select count(*) as hints, max(e.id) as last from hints_taken e) e;
  if hints > 0 and not exists (select from jobq.lane x where x.queue = last_queue and x.key = '') then
    insert into jobq.lane (queue, key, unheld) values (last_queue, '', 0);
  end if;
  if readied and jobq.worker_is_waiting(last_queue) then -- who is notified of the hint has not found it
    perform jobq.wake('work', last_queue);
  end if;
  with looked as materialized (
    select x.key, x.held_leases, x.held_slots, x.rate_ready_at
      from jobq.lane x where x.queue = last_queue and x.key > after_key order by x.key limit row_count
  ), over as materialized (
    select k.key
      from looked k
      where (
          select p.id from jobq.pending p
            where p.queue = last_queue and p.partition_key = k.key and p.position is not null
            order by p.priority, p.position limit 1
        ) is null
        and (
          select u.lease
            from unnest(k.held_leases, k.held_slots) as u(lease, slot)
            -- the limit keeps it a lookup
            cross join lateral (select from jobq.lease x where x.id = u.lease and u.slot <> all(x.ended_slots)
                limit 1) x
            limit 1
        ) is null
        -- Else the key would have its whole burst again.
        and (k.rate_ready_at > statement_timestamp() and exists (select from jobq.queue q
            where q.name = last_queue and q.key_rate_jobs is not null)) is not true
  ), gone as (
    delete from jobq.lane l where l.queue = last_queue and l.key = any(array(select o.key from over o))
  )
  select count(*), max(k.key) into lanes, last_key from looked k;
  if hints < row_count and lanes < row_count then
    last_key := '';
    if not exists (select from jobq.lane x where x.queue = last_queue and x.key > '')
        and not exists (select from jobq.lane_hint x where x.queue = last_queue) then
      delete from jobq.key_group g
        where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = last_queue
            order by x.name limit row_count))
          and exists (select from jobq.lane l where l.queue = last_queue and l.key = ''
              and l.looked_at < statement_timestamp() - interval '1 day');
      delete from jobq.lane l where l.queue = last_queue and l.key = ''
          and l.looked_at < statement_timestamp() - interval '1 day'
        -- else later
        and (select x.name from jobq.key_group x where x.queue = last_queue order by x.name limit 1) is null;
      if found then
        perform jobq.turn_forget('queue ' || last_queue), jobq.turn_forget('hints ' || last_queue);
      end if;
      update jobq.lane l set looked_at = statement_timestamp() where l.queue = last_queue and l.key = ''
          and l.looked_at is null;
    else
      update jobq.lane l set looked_at = null where l.queue = last_queue and l.key = '' and l.looked_at is not null;
    end if;
  else
    last_key := coalesce(last_key, after_key);
  end if;
  return next;
end $$;

-- lane_head_prune deletes the rows of lane_head that nobody needs any more. That is so if the queue has no
-- order; if it gets one again, jobs of before hold nobody. It is also so if the key has no lane, because
-- nothing of it runs or is in the line, and the job neither waits nor stops its key. Each call looks at
-- row_count keys after the given place, and returns where it has ended; null after the last one. It waits
-- for no lock. Needs queue_pkey, lane_head_pkey, lane_pkey, pending_pkey and run_id_idx only.
create function jobq.lane_head_prune(after_queue text, after_key text, row_count integer)
  returns table (last_queue text, last_key text)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
      set enable_sort = off set jit = off
  as $$
declare
  over_queues text[];
  over_keys text[];
  over_jobs bigint[];
  over_leases bigint[];
begin
  with looked as materialized (
    select h.queue, h.key, h.job_id, h.lease_id from jobq.lane_head h
      where (h.queue, h.key) > (after_queue, after_key)
      order by h.queue, h.key limit row_count
  ), over as materialized (
    select k.*
      from looked k
      cross join lateral (select (select q.key_order from jobq.queue q where q.name = k.queue limit 1) as key_order) q
      where q.key_order is null
        or (select l.key from jobq.lane l where l.queue = k.queue and l.key = k.key limit 1) is null
        and (select p.id from jobq.pending p where p.id = k.job_id limit 1) is null
        and (q.key_order <> 'stop' or not jobq.lane_failed(k.job_id, k.lease_id))
  )
  select array(select o.queue from over o), array(select o.key from over o), array(select o.job_id
      from over o), array(select o.lease_id from over o),
      (select k.queue from looked k offset row_count - 1 limit 1), (select k.key
          from looked k offset row_count - 1 limit 1)
    into over_queues, over_keys, over_jobs, over_leases, last_queue, last_key;
  -- A claim may have noted another one since, or be about to.
  delete from jobq.lane_head d
    where d.ctid = any(array(
      select h.place
        from unnest(over_queues, over_keys, over_jobs, over_leases) as o(queue, key, job_id, lease_id)
        cross join lateral (
          select x.ctid as place from jobq.lane_head x
            where x.queue = o.queue and x.key = o.key and x.job_id = o.job_id and x.lease_id = o.lease_id
            for update skip locked
        ) h));
  return next;
end $$;
