-- How many jobs of a queue, or of a key, may run at once or start in a time.

-- How far a queue with a rate has used it: one row, which only queue_charge writes.
-- ready_at is the "theoretical arrival time" of the generic cell rate algorithm: each
-- start moves it on by step_us, the period over rate_jobs in microseconds, and it may
-- be ahead of the clock by as many steps as the burst has.
--
-- Each write takes the next number, so that the row which counts is the first of the
-- index, read from its end: else each claim would walk past all versions of the row
-- that some open transaction may still see.
create table jobq.throttle (
  queue    text        not null,
  number   bigint      not null,
  step_us  bigint      not null,
  ready_at timestamptz not null,
  constraint throttle_pkey primary key (queue, number)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
comment on table jobq.throttle is 'How far queues with a rate have used it.';

-- rate_burst_default is the burst of a rate for which none was set: the jobs of a tenth of a second, 1 at
-- least. A burst makes up for claims that come a little late: with a burst of 1, each late claim
-- would lower the rate.
create function jobq.rate_burst_default(rate_jobs integer, rate_period interval) returns integer
  language sql immutable parallel safe
  return least(greatest(ceil(rate_jobs * 0.1 / extract(epoch from rate_period)), 1), 1000000)::integer;

-- rate_step_us is the time from one job to the next at a rate, in microseconds, rounded up.
create function jobq.rate_step_us(rate_jobs integer, rate_period interval) returns bigint
  language sql immutable parallel safe
  return ceil(extract(epoch from rate_period) * 1000000 / rate_jobs)::bigint;

-- rate_ready_at is until when a rate is used up, at the time `at`, after it has changed from a step of was_step_us to
-- step_us: never before `at`. What was used of the earlier rate counts in jobs. Example: 5 jobs were used ahead, at 1 s
-- each; with 100 ms a job it is 500 ms from now. What lies further ahead than twice the burst, and 10 s, is of a clock
-- that was set back since, or of a burst that was far larger: nothing of the rate counts as used.
create function jobq.rate_ready_at(ready_at timestamptz, was_step_us bigint, step_us bigint, burst integer,
    at timestamptz) returns timestamptz
  language sql stable parallel safe
  return at + case
      when extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us > 2 * burst * step_us::numeric + 10000000
          then 0
      else greatest(least(ceil(extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us),
          burst * step_us::numeric), 0)
    end * interval '1 us';

-- throttle_ready_at is until when a queue's rate is used up, at the time `at`, for a rate of this step and burst
-- (rate_ready_at).
create function jobq.throttle_ready_at(of_queue text, step_us bigint, burst integer, at timestamptz) returns timestamptz
  language sql stable
  return coalesce((
    select jobq.rate_ready_at(t.ready_at, t.step_us, throttle_ready_at.step_us, throttle_ready_at.burst,
        throttle_ready_at.at)
      from jobq.throttle t
      where t.queue = of_queue
      order by t.number desc
      limit 1), at);

-- throttled_until is when a queue with this rate may start its next job; null if it may
-- do so now.
create function jobq.throttled_until(of_queue text, rate_jobs integer, rate_period interval, rate_burst integer)
    returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.throttle_ready_at(of_queue, r.step_us, r.burst,
        r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(throttled_until.rate_jobs, throttled_until.rate_period) as step_us,
            coalesce(throttled_until.rate_burst, jobq.rate_burst_default(throttled_until.rate_jobs,
                throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      where throttled_until.rate_jobs is not null
  );

-- key_throttled_until is when a partition key of a queue with this rate of its keys may start its next job, null when
-- it may do so now. Needs lane_pkey only.
create function jobq.key_throttled_until(of_queue text, of_key text, rate_jobs integer, rate_period interval,
    rate_burst integer) returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.rate_ready_at(l.rate_ready_at, l.rate_step_us, r.step_us, r.burst,
        r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(key_throttled_until.rate_jobs, key_throttled_until.rate_period) as step_us,
            coalesce(key_throttled_until.rate_burst, jobq.rate_burst_default(key_throttled_until.rate_jobs,
                key_throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      cross join lateral (
        select x.rate_ready_at, x.rate_step_us from jobq.lane x
          where key_throttled_until.rate_jobs is not null and x.queue = of_queue and x.key = of_key
            and x.rate_ready_at is not null limit 1
      ) l
  );

-- turn_shareable says whether several claims of a queue may have its turn at once: 200 lanes are ready, and there is no
-- work that needs one claim alone. Such work is a limit or a rate to keep, weights, groups, paused keys to handle, and
-- lanes that must become ready without being taken from. Needs lane_pkey, lane_turn_idx, lane_full_idx,
-- lane_throttled_idx, lane_hint_pkey, key_weight_pkey and queue_pkey only.
create function jobq.turn_shareable(of_queue text) returns boolean
  language plpgsql stable
  as $$
begin
  return exists (select from jobq.lane x where x.queue = of_queue and x.key = '' and x.unheld is not null
      and x.group_clock is null)
    and not exists (select from jobq.queue q where q.name = of_queue
      and (q.max_running is not null or q.rate_jobs is not null or q.key_limit is not null
          or q.key_rate_jobs is not null or q.key_separator is not null))
    and (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is null
    and (select x.rate_step_us from jobq.lane x where x.queue = of_queue and x.throttled_until is not null
        order by x.rate_step_us limit 1) is null
    and (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0 order by h.id limit 1) is null
    and (select x.full_limit from jobq.lane x where x.queue = of_queue and x.full_limit is not null
        order by x.full_limit limit 1) is null
    and (select count(*) from (select from jobq.lane x where x.queue = of_queue and x.turn is not null
        order by x.turn limit 200) x) = 200;
end $$;

-- queue_admit says how many jobs of a queue may be claimed now, at most jobs_max, and keeps the number for the JobClaim
-- that follows in the same transaction. queue_charge is the last of the three. Without limits all are admitted.
--
-- Claims of one queue take turns: queue_admit locks the turn until the transaction ends. Ends, extensions and inserts
-- do not need the turn, and go on. A claim that carries results is not patient: waiting would delay the storing of the
-- results. It waits for about as long as one other claim takes, is then told that the queue is busy, and asks again. So
-- is any claim that has waited for five seconds.
--
-- The count comes after the lock, in a statement of its own, so that its snapshot has all that was claimed under the
-- lock before:
--
--   limit 3, two run; A and B want one each
--   A  lock; counts 2; claims 1; commits
--   B  lock, after that; counts 3; claims none
--
-- The jobs that run are counted from the leases: their jobs without those that have ended. There is no counter that
-- could be wrong. A job whose end is stored in its own row, and not yet in its lease, counts until it is there. The
-- jobs of a dead worker count until its leases are reaped.
--
-- slots_free is how many of the worker's slots have no job. If the limit leaves more than eight times as many jobs, up
-- to an eighth of those is admitted, to be claimed ahead. A job that waits in a worker counts as running.
--
-- With sharing, a claim of 100 jobs or more has the turn together with others like it, if turn_shareable says so.
-- lane_claim says how these keep apart. Claims that do not share wait for all of them, and the other way round. If a
-- limit has come while a sharing claim waited, it is told that the queue is busy.
--
-- blocked says why fewer were admitted than asked for: limit, rate or busy. With rate, wait_ms is how long to wait
-- until half of the burst may start, or all that is asked for: not only the next job, so that claims are few, and never
-- so late that the rate is not reached. Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_admit(of_queue text, jobs_max integer, slots_free integer, patient boolean,
    sharing boolean default false)
  returns table (admitted integer, blocked text, wait_ms bigint)
  language plpgsql
  as $$
declare
  shared constant boolean := sharing and jobs_max >= 100 and jobq.turn_shareable(of_queue);
  -- a claim of 1,000 jobs has the turn for about 25 ms
  turn_wait_ms constant integer := case when patient then 5000 else 25 end;
  is_ours boolean; -- the turn
  q record;
  room bigint; -- what the limit leaves
  step bigint;
  burst integer;
  at timestamptz;
  left_us bigint; -- of the burst
begin
  admitted := 0;
  blocked := 'busy';
  wait_ms := 0;
  perform set_config('jobq_claim.running', '', true);
  perform set_config('jobq_claim.shared', shared::text, true);
  is_ours := case when shared then jobq.turn_share('queue ' || of_queue, turn_wait_ms)
      else jobq.turn_take('queue ' || of_queue, turn_wait_ms) end;
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not is_ours or shared and (q.max_running is not null or q.rate_jobs is not null) then
    perform set_config('jobq_claim.admitted', '', true);
    return next;
    return;
  end if;
  admitted := jobs_max;
  blocked := '';
  if q.max_running is not null then
    select greatest(q.max_running - coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0), 0) into room
      from jobq.lease l where l.queue = of_queue;
    if admitted > room / 8 and admitted > least(slots_free, room) then
      admitted := greatest(least(slots_free, room), least(admitted, room / 8));
      blocked := 'limit';
    end if;
    perform set_config('jobq_claim.running', (q.max_running - room)::text, true);
  end if;
  if q.rate_jobs is not null and admitted > 0 then
    step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    at := clock_timestamp();
    left_us := burst * step
        - ceil(extract(epoch from jobq.throttle_ready_at(of_queue, step, burst, at) - at) * 1000000)::bigint;
    if left_us / step < admitted then
      wait_ms := greatest(ceil((least(admitted - left_us / step, greatest(burst / 2, 1)) * step
          - left_us % step) / 1000.0), 1);
      admitted := left_us / step;
      blocked := 'rate';
    end if;
  end if;
  perform set_config('jobq_claim.admitted', admitted::text, true);
  return next;
end $$;

-- queue_charge ends a claim of a queue with limits. It takes the claimed jobs from the rate, at the time of the claim:
-- so in no span of time, by claimed_at, have more jobs started than the rate and its burst allow. If the claim is
-- rolled back, so is this.
--
-- It also wakes other workers if the transaction has ended jobs of the queue (ended), found the queue at its limit, and
-- leaves room in it: they may have been refused before. Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_charge(of_queue text, ended integer) returns void
  language plpgsql
  as $$
declare
  q record;
  c record;
  step bigint;
  burst integer;
  ready_at timestamptz;
begin
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not found or (q.rate_jobs is null and (q.max_running is null or ended = 0)) then
    return;
  end if;
  -- queue_admit has counted after the ends.
  if q.rate_jobs is null
      and nullif(current_setting('jobq_claim.running', true), '')::bigint + ended < q.max_running then
    return;
  end if;
  -- A lease of this transaction's making was claimed since it began, and has no ends. One of
  -- before, which it was told of ends of, is of its writing as well.
  select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) as running,
      coalesce(sum(cardinality(l.job_ids)) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now()
          and l.ended_slots = '{}'), 0) as jobs,
      max(l.claimed_at) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now()
          and l.ended_slots = '{}') as claimed_at
    into c
    from jobq.lease l where l.queue = of_queue;
  -- Without the lock, as after a claim that was told that it is busy, the throttle is not
  -- written. With it, it is after a change of the rate as well: what was used of the old one
  -- would else come free at its pace.
  step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
  if q.rate_jobs is not null and current_setting('jobq_claim.admitted', true) <> '' and (c.jobs > 0
      or step <> (select t.step_us from jobq.throttle t where t.queue = of_queue order by t.number desc limit 1)) then
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    ready_at := jobq.throttle_ready_at(of_queue, step, burst, coalesce(c.claimed_at, clock_timestamp()))
        + c.jobs * step * interval '1 us';
    with old as (
      delete from jobq.throttle t
        where t.ctid = any(array(select x.ctid from jobq.throttle x where x.queue = of_queue
            order by x.number desc limit 1))
        returning t.number
    )
    insert into jobq.throttle (queue, number, step_us, ready_at)
      values (of_queue, coalesce((select o.number from old o), 0) + 1, step, ready_at);
  end if;
  if c.running < q.max_running and c.running - c.jobs + ended >= q.max_running then
    perform jobq.notify('room', of_queue);
  end if;
end $$;
