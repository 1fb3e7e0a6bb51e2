-- Jobs that are kept for less long than others of their day.

-- How far jobs were deleted from days of the history that stay for others, which are kept for longer: see
-- history_sweep. A day without a row was not looked through yet. With finished_retention = 7 days, and 90 for
-- the queue audit, on 20 November:
--
--   day     began_at      next_block
--   10 Nov  18 Nov 00:05              swept: it has jobs of audit only, and goes in February
--   11 Nov  19 Nov 00:05              swept
--   12 Nov  20 Nov 00:05  4800        the blocks before 4800 of its partition were looked through
--   13 Nov                            no row: not yet
create table jobq.sweep (
  day        date        not null primary key,
  began_at   timestamptz not null, -- the last time that its first block was looked at
  again_at   timestamptz, -- when it is to be looked through once more, whatever has been since began_at
  next_block bigint, -- while it goes on, in run
  next_lease bigint, -- and then in past_lease: the leases after this one
  last_lease bigint, -- up to this one; null: leases are left alone
  -- jobs stay whose time has come: they run, say, or ended later than others of the day
  left_over  boolean     not null default false
);
comment on table jobq.sweep is
  'How far jobs were deleted from days of the history that stay for others, which are kept for longer.';
comment on column jobq.sweep.day is 'The day (UTC).';
comment on column jobq.sweep.began_at is 'When it was last begun.';
comment on column jobq.sweep.again_at is
  'When the day is to be looked through once more; null: when the next retention is over.';
comment on column jobq.sweep.next_block is 'The block of its partition of run at which it goes on; null: it does not.';
comment on column jobq.sweep.next_lease is 'The lease after which it goes on; null: it does not.';
comment on column jobq.sweep.last_lease is 'The last lease at which it looks; null: at none.';
comment on column jobq.sweep.left_over is 'Whether jobs stay whose time has come, such as those that run.';

-- Leases of the day that is being swept whose jobs are kept. They go when the leases were looked at.
create table jobq.sweep_lease (lease_id bigint not null primary key);
comment on table jobq.sweep_lease is 'Leases of the day that is being swept whose jobs are kept.';
comment on column jobq.sweep_lease.lease_id is 'The lease.';

-- Leases of jobs that came back into the history, by an undo: their days are to be swept again. Rows go when the next
-- sweep begins. Without a key, so that nobody waits.
create table jobq.sweep_again (lease_id bigint not null);
comment on table jobq.sweep_again is 'Leases of jobs that an undo has brought back: their days are to be swept again.';
comment on column jobq.sweep_again.lease_id is 'The lease.';
create index sweep_again_lease_idx on jobq.sweep_again (lease_id);
alter table jobq.sweep_again replica identity full; -- as run

-- sweep_next is the day that is to be looked through next: one that stays because of the longest retention, and has
-- passed a shorter one since it was last looked through; null if there is none.
--
-- Example: with retentions of 1, 7 and 90 days, a day is looked through when it is 1 and 7 days old, and dropped when
-- it is 90. If jobs of an earlier day were left over, again_at says when that day is looked through again.
create function jobq.sweep_next(shortest interval, longest interval) returns date
  language plpgsql stable
  as $$
begin
  return (
    with kept as materialized (
      select jobq.kept_for(k.retention) as retention, jobq.keep_from_day(k.retention) as from_day
        from (
          select s.finished_retention from jobq.setting s
          union select s.failed_retention from jobq.setting s
          union select q.retention from jobq.queue q where q.retention is not null or q.failed_retention is not null
          union select q.failed_retention from jobq.queue q
              where q.retention is not null or q.failed_retention is not null
        ) k(retention)
        where k.retention is not null
    )
    select d.day
      from (
        select to_date(right(c.relname, 8), 'YYYYMMDD') as day
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
          where i.inhparent = 'jobq.run'::regclass and c.relname ~ '^run_[0-9]{8}$'
      ) d
      left join jobq.sweep w on w.day = d.day
      where d.day >= jobq.keep_from_day(sweep_next.longest) and d.day < jobq.keep_from_day(sweep_next.shortest)
        and (w.day is null or w.again_at <= statement_timestamp() or w.began_at > statement_timestamp()
          or exists (
            select from kept k
              where d.day < k.from_day
                and d.day >= ((w.began_at - k.retention - interval '1 minute') at time zone 'UTC')::date))
      order by d.day
      limit 1);
end $$;

-- sweep_begin notes that the day begins that history_sweep looks through next, and returns it; null if there is none.
create function jobq.sweep_begin() returns date
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  span record;
  chosen date;
  held boolean;
  last_lease bigint;
begin
  with restored as (
    delete from jobq.sweep_again g
      where g.ctid = any(array(select x.ctid from jobq.sweep_again x order by x.lease_id limit 10000))
      returning g.lease_id
  )
  update jobq.sweep w set again_at = least(w.again_at, statement_timestamp())
    where w.day in (select date '2026-01-01' + (r.lease_id >> 40)::integer from restored r);
  select t.* into span from jobq.retention_span() t;
  if span.shortest = span.longest then
    return null;
  end if;
  -- What a sweep has left that did not come to its end: its day was dropped.
  delete from jobq.sweep_lease k
    where k.lease_id = any(array(
      select x.lease_id from jobq.sweep_lease x where x.lease_id < jobq.lease_day(jobq.keep_from_day(span.longest))
          order by x.lease_id limit 10000));
  chosen := jobq.sweep_next(span.shortest, span.longest);
  if chosen is null then
    return null;
  end if;
  -- While one of its leases is held, a row may move to a place that was looked at.
  held := exists (select from jobq.lease l where l.id >= jobq.lease_day(chosen) and l.id < jobq.lease_day(chosen + 1));
  if not held and chosen < jobq.keep_from_day()
      and to_regclass(format('jobq.past_lease_%s', to_char(chosen, 'YYYYMMDD'))) is not null then
    execute format('select l.id from jobq.past_lease_%s l order by l.id desc limit 1', to_char(chosen, 'YYYYMMDD'))
        into last_lease;
  end if;
  insert into jobq.sweep as w (day, began_at, next_block, last_lease, left_over)
      values (chosen, statement_timestamp(), 0, last_lease, held)
    on conflict (day) do update
      set began_at = excluded.began_at, again_at = null, next_block = 0, next_lease = null,
          last_lease = excluded.last_lease, left_over = held;
  return chosen;
end $$;

-- history_sweep deletes jobs that are past their retention from days of the history that stay because of other jobs. A
-- call looks at block_count blocks of a day's partition, or begins a day, or looks at lease_count of its leases. The
-- table sweep holds the place where the next call goes on, whoever makes it. It returns the day and how many jobs it
-- has deleted; no day if there is nothing to do.
--
-- Example: block_count 16, and a day of 40 blocks. The first call begins the day, the next three look at the blocks 0
-- to 15, 16 to 31 and 32 to 39, and the fifth at the first of its leases.
--
-- As in default_prune, the statement that deletes also checks that the day may be deleted from. The large args and the
-- attempts of a job are deleted with it, its steps with the next step_prune. A job is left over if it has not ended,
-- has ended later than others of its day, is locked, or waits until the dependencies on it are deleted
-- (dependency_prune): then the day is looked through again a day later.
--
-- If the day is past finished_retention, its leases of which no job is left are deleted. A row of past_lease does not
-- say which these are, so each lease that is still needed is noted in sweep_lease. A lease that was written after the
-- day was begun has a greater id than last_lease, and stays.
create function jobq.history_sweep(block_count integer, lease_count integer) returns table (day date, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  place jobq.sweep;
  name text;
begin
  removed := 0;
  select w.* into place from jobq.sweep w where w.next_block is not null or w.next_lease is not null
      order by w.day limit 1 for update;
  if not found then
    day := jobq.sweep_begin();
    if day is not null then
      return next;
    end if;
    return;
  end if;
  day := place.day;
  name := to_char(day, 'YYYYMMDD');
  if to_regclass('jobq.run_' || name) is null
      -- dropped; or kept for longer, or not exported, from now on
      or day >= (select jobq.keep_from_day(t.shortest) from jobq.retention_span() t) then
    delete from jobq.sweep w where w.day = place.day;
  elsif place.next_block is not null then
    removed := jobq.sweep_blocks(place, name, block_count);
  elsif to_regclass('jobq.past_lease_' || name) is null then
    update jobq.sweep w set next_lease = null where w.day = place.day;
  else
    perform jobq.sweep_leases(place, name, lease_count);
  end if;
  return next;
end $$;

-- sweep_blocks looks at the next blocks of a day, for history_sweep. It names the day's partition of run, and the
-- bounds of its leases are constants of the query, so that the other days are not locked.
create function jobq.sweep_blocks(place jobq.sweep, name text, block_count integer) returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  block_end bigint := place.next_block + block_count;
  is_last boolean := block_end >= pg_relation_size(format('jobq.run_%s',
      name)::regclass) / current_setting('block_size')::bigint;
  removed bigint;
  stays boolean; -- some job whose time has come
  gone_ids bigint[];
  gone_created timestamptz[];
  last_end timestamptz;
begin
  execute format($sql$
    with page as materialized (
      select r.ctid as place, r.id, r.lease_id, r.slot, r.state, r.queue, r.created_at, r.finished_at
        from jobq.run_%1$s r
        where r.ctid >= %2$L and r.ctid < %3$L
    ), known as materialized (
      select p.place, p.id, p.lease_id, p.slot,
          coalesce(p.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms') as ended_at,
          k.retention, s.keep_until_exported and $1 >= s.exported_before as is_kept
        from page p
        cross join jobq.setting s
        cross join lateral jobq.retention_of(p.queue, p.state) k
        left join lateral (
          select x.claimed_at, x.ended_ms[array_position(x.ended_slots, p.slot)] as ended_ms from jobq.lease x
              where x.id = p.lease_id
          union all
          select x.claimed_at, x.ended[p.slot] from jobq.past_lease x where x.id = p.lease_id and x.id >= %4$s
              and x.id < %5$s
          limit 1
        ) l on true
    ), due as materialized (
      select k.place, k.id, k.lease_id, k.ended_at,
          not k.is_kept and k.ended_at < statement_timestamp() - k.retention
            and (select true from jobq.dependency d where d.parent = k.id and d.parent_lease = k.lease_id
                limit 1) is null as goes
        from known k
        where k.ended_at is null
          or $1 < ((statement_timestamp() - k.retention - interval '1 minute') at time zone 'UTC')::date
    ), old as materialized (
      select d.place, d.ended_at
        from due d
        cross join lateral (select x.ctid from jobq.run_%1$s x where x.ctid = d.place for update skip locked) l
        where d.goes
    ), gone as materialized (
      delete from jobq.run_%1$s r
        where r.ctid = any(array(select o.place from old o))
        returning r.ctid as place, r.id, r.args_apart, r.created_at
    ), args_gone as (
      delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
    ), noted as (
      insert into jobq.sweep_lease (lease_id)
        select distinct k.lease_id
          from known k
          where $2 and k.slot > 0 and not exists (select from gone g where g.place = k.place)
          order by k.lease_id
        on conflict do nothing
    )
    select count(*), (select count(*) from due) > count(*), array_agg(g.id), array_agg(g.created_at),
        (select max(o.ended_at) from old o)
      from gone g
  $sql$, name, format('(%s,0)', place.next_block), format('(%s,0)', block_end), jobq.lease_day(place.day),
      jobq.lease_day(place.day + 1))
    using place.day, place.last_lease is not null
    into removed, stays, gone_ids, gone_created, last_end;
  if removed > 0 then
    perform jobq.attempts_forget(gone_ids, gone_created, last_end + interval '1 minute');
  end if;
  stays := stays or place.left_over;
  update jobq.sweep w
    set next_block = case when not is_last then block_end end,
      next_lease = case when is_last and place.last_lease is not null then jobq.lease_day(place.day) - 1 end,
      left_over = stays,
      again_at = least(w.again_at, case when is_last and stays then place.began_at + interval '1 day' end)
    where w.day = place.day;
  return removed;
end $$;

-- sweep_leases looks at the next leases of a day, for history_sweep.
create function jobq.sweep_leases(place jobq.sweep, name text, lease_count integer) returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last bigint; -- null: there are no more
begin
  execute format($sql$
    with page as materialized (
      select l.id from jobq.past_lease_%s l where l.id > $1 and l.id <= $2 order by l.id limit $3
    ), gone as (
      delete from jobq.past_lease_%1$s l
        where l.id = any(array(
          select p.id from page p
            where (select true from jobq.sweep_lease k where k.lease_id = p.id) is null
              and (select true from jobq.sweep_again g where g.lease_id = p.id limit 1) is null))
    )
    select max(p.id) from page p
  $sql$, name) using place.next_lease, place.last_lease, lease_count into last;
  -- No more of this day than there are leases: an index range, from where the last call has ended.
  delete from jobq.sweep_lease k
    where k.lease_id > place.next_lease and k.lease_id <= coalesce(last, jobq.lease_day(place.day + 1) - 1);
  update jobq.sweep w set next_lease = last where w.day = place.day;
end $$;
