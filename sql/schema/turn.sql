-- Turns (turn_take): a session has one while it has locked the rows of its name. These are locks on rows of our own,
-- and not advisory locks, because any login may take an advisory lock. No role has rights in this table. A claim that
-- shares a queue's turn locks one of the other parts, which are numbered from 1. The table is unlogged: the locks end
-- with their sessions, a row that is missing is added, and a lock writes no WAL.
create unlogged table jobq.turn (
  name  text     not null,
  part  smallint not null,
  parts smallint not null default 0, -- how many others there are; only part 0 says so
  constraint turn_pkey primary key (name, part)
);
comment on table jobq.turn is 'Rows that sessions lock to take turns.';
comment on column jobq.turn.name is 'Whose turn: queue and its name, announce, or schedules.';
comment on column jobq.turn.part is '0, or the number of a part for a claim that shares the turn.';
comment on column jobq.turn.parts is 'How many parts there are beside part 0.';

-- turn_take takes a turn until the transaction ends, and says whether it was to be had. It waits for each of its rows
-- for wait_ms at most. Who waits first is first: other sessions cannot overtake.
create function jobq.turn_take(of_turn text, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  others integer;
  got bigint;
begin
  select t.parts into others from jobq.turn t where t.name = of_turn and t.part = 0 for no key update skip locked;
  if not found and wait_ms = 0 and exists (select from jobq.turn t where t.name = of_turn and t.part = 0) then
    return false;
  elsif not found then
    return jobq.turn_wait(of_turn, 0, greatest(wait_ms, 1));
  elsif others > 0 then
    select count(*) into got
      from (select from jobq.turn t where t.name = of_turn and t.part > 0
          order by t.part for no key update skip locked) p;
    if got < others then
      return jobq.turn_wait(of_turn, 0, wait_ms);
    end if;
  end if;
  return true;
end $$;

-- turn_share takes a turn together with others that share it. Each of them locks a part of its own, and so has to wait
-- where all parts are locked. A turn that nobody has shared so far has no parts: it is taken alone once, to add them.
create function jobq.turn_share(of_turn text, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform from jobq.turn t where t.name = of_turn and t.part > 0 limit 1 for no key update skip locked;
  if found then
    return true;
  elsif exists (select from jobq.turn t where t.name = of_turn and t.part > 0) then
    return jobq.turn_wait(of_turn, 1 + pg_backend_pid() % 8, wait_ms);
  elsif not jobq.turn_take(of_turn, wait_ms) then
    return false;
  end if;
  insert into jobq.turn (name, part) select of_turn, g from generate_series(1, 8) g on conflict do nothing;
  update jobq.turn t set parts = 8 where t.name = of_turn and t.part = 0;
  return true;
end $$;

-- turn_wait waits for one part of a turn, or with part 0 for all. It adds the row where there is none, or no more.
create function jobq.turn_wait(of_turn text, of_part integer, wait_ms integer) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$
declare
  began constant timestamptz := clock_timestamp();
begin
  perform set_config('lock_timeout', wait_ms || 'ms', true);
  loop
    perform from jobq.turn t where t.name = of_turn and t.part = of_part for no key update;
    exit when found;
    if of_part > 0 then
      return false; -- turn_forget was faster
    end if;
    insert into jobq.turn (name, part) values (of_turn, of_part) on conflict do nothing;
  end loop;
  if of_part = 0 then -- a statement of its own, which sees the parts that were added meanwhile
    perform from jobq.turn t where t.name = of_turn and t.part > 0 order by t.part for no key update;
  end if;
  return true;
exception
  when lock_not_available then
    return false;
  when query_canceled then
    -- A row that several wait for is locked in two steps. If the time is over between them, PostgreSQL says that
    -- somebody has cancelled the statement.
    if clock_timestamp() < began + wait_ms * interval '1 ms' then
      raise;
    end if;
    return false;
end $$;

-- turn_forget deletes the rows of a turn that is not needed any more.
create function jobq.turn_forget(of_turn text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$ delete from jobq.turn t where t.name = of_turn $$;

-- turn_holder is the session that has a turn, as why_session says; null if none has. An unlogged table cannot be read
-- on a standby.
create function jobq.turn_holder(of_turn text) returns jsonb
  language plpgsql stable security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  locker xid;
  holder jsonb;
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  for locker in select t.xmax from jobq.turn t where t.name = of_turn and t.xmax <> '0'::xid order by t.part loop
    holder := coalesce(holder, jobq.why_row_locked(locker, 'jobq.turn'::regclass));
  end loop;
  return holder;
end $$;
