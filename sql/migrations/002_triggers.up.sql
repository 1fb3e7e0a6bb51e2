-- Triggers: what happens when a job comes into a table, whoever writes it: a Go
-- client, the worker, or a plain INSERT from any language.
set local lock_timeout = '5s';

-- channel is the name of a NOTIFY channel. The hash makes it differ between two schemas of one database, and keeps it below 64
-- bytes, whatever the schema is called. db.Channel is the same in Go.
--
--   work, head         the id of the transaction, and the name of a queue (wake)
--   taken              which notifications of a queue are answered (worker/internal/waking)
--   due                when the earliest new job becomes due, in seconds since 1970
--   cancel             the id of a job
--   drain              the id of a worker
--   room, settings     the name of a queue
--   event              the id of a digest (006)
--   ended              ids of jobs (waiters_wake)
--   watch, schedule    nothing
--
-- Any role can send and hear all of these. So a payload is only a hint, and holds nothing secret but the names of queues.
create function jobq.channel(topic text) returns text
  language sql immutable parallel safe
  return 'jobq_' || topic || '_' || left(md5('jobq.'), 16);

-- notifications_full says whether the server's queue of notifications is almost full. When it is full, each transaction that
-- notifies fails. Any login can fill it, by a session that listens and does not end its transaction.
create function jobq.notifications_full() returns boolean
  language sql
  return pg_notification_queue_usage() > 0.9;

-- notify sends a notification, unless their queue is almost full: a job is worth more than a notification of it, and whoever
-- listens looks for work by itself after a while. It costs 0.2 µs with 10 sessions that listen, and 1 µs with 200.
create function jobq.notify(topic text, payload text) returns void
  language sql
  return case when not jobq.notifications_full() then pg_notify(jobq.channel(topic), payload) end;

-- turn_take takes a turn until the transaction ends, and says whether it was to be had. It waits for each of its rows for
-- wait_ms at most. Who waits first is first: other sessions cannot overtake.
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
      from (select from jobq.turn t where t.name = of_turn and t.part > 0 order by t.part for no key update skip locked) p;
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
exception when lock_not_available then
  return false;
end $$;

-- turn_forget deletes the rows of a turn that is not needed any more.
create function jobq.turn_forget(of_turn text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$ delete from jobq.turn t where t.name = of_turn $$;

-- turn_holder is the session that has a turn, as why_session says; null if none has. An unlogged table cannot be read on
-- a standby.
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

-- wake tells workers that a queue has available jobs (work), or that it has some at places where workers have already looked
-- (head). The payload has the transaction's id, which tells notifications apart: a worker that has claimed after one, and left
-- nothing, says so to the others (worker/internal/waking).
create function jobq.wake(topic text, queue text) returns void
  language sql
  return jobq.notify(topic, pg_current_xact_id()::text || ' ' || left(queue, 1000)); -- a payload has at most 8000 bytes

-- waiting_group is the sequence that says until when a worker waits for jobs of a queue, and perhaps of others of its group.
create function jobq.waiting_group(of_queue text) returns regclass
  language sql stable
  return ('jobq.waiting_' || (hashtext(of_queue) & 15) || '_seq')::regclass;

-- worker_is_waiting says whether a worker has announced that it waits for jobs of a queue, or of another one of the same group.
create function jobq.worker_is_waiting(of_queue text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return coalesce(pg_sequence_last_value(jobq.waiting_group(of_queue)) >= extract(epoch from clock_timestamp()), false);
end $$;

-- wait_announce announces, for so many seconds from now, an hour at most, that a worker waits for jobs of a queue: inserts then
-- notify. It returns whether none waited before. In that case an insert that has already looked, and has not committed yet, does
-- not notify. Workers take turns, since a shorter announcement could take the place of a longer one otherwise; a fleet of idle
-- workers mostly finds that another one holds as long, and needs no turn. Who does not get the turn within a second announces
-- without it: the other worker then has to poll, at worst. The commit does not wait for the disk: if the server crashes, the
-- worker loses its connections, and announces anew.
create function jobq.wait_announce(of_queue text, seconds bigint) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  group_seq regclass := jobq.waiting_group(of_queue);
  until bigint;
  before bigint;
begin
  until := ceil(extract(epoch from clock_timestamp()))::bigint + least(greatest(seconds, 0), 3600);
  if pg_sequence_last_value(group_seq) >= until and pg_sequence_last_value('jobq.waiting_seq') >= until then
    return false;
  end if;
  perform jobq.turn_take('announce', 1000);
  perform set_config('synchronous_commit', 'off', true);
  before := coalesce(pg_sequence_last_value(group_seq), 0);
  perform setval(group_seq, greatest(before, until));
  perform setval('jobq.waiting_seq', greatest(coalesce(pg_sequence_last_value('jobq.waiting_seq'), 0), until));
  return before < extract(epoch from clock_timestamp());
end $$;

-- unique_key_try reserves (kind, key) for a job and returns the job that holds it: this one, or another one that is unfinished,
-- or that has ended and keeps the key for a time. A job that takes the key keeps it at least until then. It waits for a
-- transaction that is about to take or release the same key.
create function jobq.unique_key_try(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  held record;
  moment timestamptz;
begin
  loop
    insert into jobq.unique_key (kind, key, job_id, kept_until)
      values (wanted_kind, wanted_key, wanted_by, until)
      on conflict do nothing;
    if found then
      return wanted_by;
    end if;
    select u.job_id, u.job_over, u.kept_until into held from jobq.unique_key u where u.kind = wanted_kind and u.key = wanted_key;
    if found then
      moment := clock_timestamp(); -- the insert may have waited
      if not held.job_over or held.job_id <> wanted_by and held.kept_until > moment then
        return held.job_id;
      end if;
      -- Its time has come, or the job itself is requeued, which had ended.
      update jobq.unique_key u
        set job_id = wanted_by, job_over = false, kept_until = case when u.job_id = wanted_by then u.kept_until else until end
        where u.kind = wanted_kind and u.key = wanted_key and u.job_over and (u.job_id = wanted_by or u.kept_until <= moment);
      if found then
        return wanted_by;
      end if;
    end if;
    -- The holder finished between the two statements, or somebody else took the key: try again.
  end loop;
end $$;

-- unique_key_wait is the same with a limit on each wait.
create function jobq.unique_key_wait(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1min'
  as $$
begin
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_take is unique_key_try, and waits for as long as the caller's lock_timeout says, or for a minute at most. Then it
-- raises lock_not_available (55P03).
create function jobq.unique_key_take(wanted_kind text, wanted_key text, wanted_by bigint, until timestamptz default null) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if current_setting('lock_timeout') = '0' then
    return jobq.unique_key_wait(wanted_kind, wanted_key, wanted_by, until);
  end if;
  return jobq.unique_key_try(wanted_kind, wanted_key, wanted_by, until);
end $$;

-- unique_key_problem says who has a key.
create function jobq.unique_key_problem(of_kind text, of_key text, holder bigint) returns text
  language plpgsql stable
  as $$
begin
  return format('unique_key %L of kind %L is held by %s', of_key, of_kind, coalesce((
    select format('job %s, which is over, until %s', u.job_id, to_char(u.kept_until at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
      from jobq.unique_key u where u.kind = of_kind and u.key = of_key and u.job_id = holder and u.job_over),
    format('unfinished job %s', holder)));
end $$;

-- unique_key_drop releases the key of a job that has ended, or that was not added after all. A key with
-- a time of its own is kept until then.
create function jobq.unique_key_drop(of_kind text, of_key text, of_job bigint) returns void
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
begin
  delete from jobq.unique_key u
    where u.kind = of_kind and u.key = of_key and u.job_id = of_job and (u.kept_until is null or u.kept_until <= moment);
  if not found then
    update jobq.unique_key u set job_over = true where u.kind = of_kind and u.key = of_key and u.job_id = of_job and not u.job_over;
  end if;
end $$;

-- pending_json_require raises for a job whose JSON is too long or nested too deeply. pending_before_insert leaves out args over
-- 1000 bytes, which have their CHECK in payload.
create function jobq.pending_json_require(args jsonb, metadata jsonb, checkpoint jsonb) returns void
  language plpgsql
  as $$
begin
  perform jobq.json_require('args', args, jobq.args_bytes_max()), jobq.json_require('metadata', metadata, 65536),
    jobq.json_require('checkpoint', checkpoint, 1048576);
end $$;

-- Called only for the few rows that need it: see the trigger's WHEN. Of args that are stored in at most 100 bytes, the text
-- cannot be too long, and in at most 800, they cannot be nested too deeply. To make the text costs less than to call this function.
create function jobq.pending_before_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder bigint;
  apart boolean := pg_column_size(new.args) > 1000; -- once: it may be compressed here, and not where it is an argument
begin
  if new.lease_token = 0 then -- what has been claimed was accepted: a limit lowered since must not keep it from coming back
    perform jobq.pending_json_require(case when not apart then new.args end, new.metadata, new.checkpoint);
  end if;
  if new.run_at > clock_timestamp() or new.crashes >= least(2, new.max_attempts - new.attempts) then -- a suspect: see pending_suspect_idx
    new.position := null;
  end if;
  new.partition_key := coalesce(new.partition_key, ''); -- as an application writes that has none
  if (new.position is null and new.waits is null or new.partition_key <> '')
      and current_setting('jobq_pending.marked', true) is distinct from 'on' then -- to set it costs as much as all the rest
    perform set_config('jobq_pending.marked', 'on', true); -- for pending_after_insert
  end if;
  if new.unique_key is not null then
    holder := jobq.unique_key_take(new.kind, new.unique_key, new.id);
    if holder <> new.id then
      raise unique_violation using
        message = jobq.unique_key_problem(new.kind, new.unique_key, holder),
        hint = 'The function enqueue returns the id of that job instead.',
        constraint = 'unique_key_pkey', table = 'unique_key';
    end if;
  end if;
  if apart then
    insert into jobq.payload (job_id, args) values (new.id, new.args);
    new.args := null;
    new.args_apart := true;
  end if;
  return new;
end $$;

create trigger pending_before_insert before insert on jobq.pending
  for each row when (new.run_at > now() or new.position is null or new.crashes > 0 or new.unique_key is not null or new.partition_key is distinct from ''
    or pg_column_size(new.args) > 100 and (pg_column_size(new.args) > 800 or octet_length(new.args::text) > 10000)
    or pg_column_compression(new.args) is not null or new.metadata is not null or new.checkpoint is not null)
  execute function jobq.pending_before_insert();

create function jobq.pending_before_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.pending_json_require(new.args, new.metadata, new.checkpoint); -- args over 1000 bytes are not here
  return new;
end $$;

create trigger pending_before_update before update of args, metadata, checkpoint on jobq.pending
  for each row when (new.args is distinct from old.args or new.metadata is distinct from old.metadata or new.checkpoint is distinct from old.checkpoint)
  execute function jobq.pending_before_update();

-- pending_wake wakes workers of the queues that have new available jobs: with one NOTIFY per
-- queue and transaction at most, because PostgreSQL drops equal ones of a
-- transaction. The trigger's WHEN looks whether somebody waits, with the
-- rights of the role that inserts: to call a function costs more than the row.
--
-- Commits with a NOTIFY go one at a time, each with its own wait for the disk. So an insert
-- notifies only while a worker says that it waits. No wake-up is lost:
-- - a worker says that it waits (1), lets a transaction with a younger id end, so that a
--   snapshot lists all older ones, looks which of them are open (2), and claims (3);
-- - an insert gets its transaction's id, looks here whether somebody waits (4),
--   and commits (5).
-- If (4) sees (1), it notifies. Otherwise (4) came before (1). Then the insert's
-- transaction had its id already, and was open at (2) or had ended before: either
-- (3) finds the job, or the worker goes on claiming until all transactions that it saw at
-- (2) have ended. internal/db has the interleavings as a test.
create function jobq.pending_wake() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text;
begin
  for name in select distinct i.queue from inserted i where i.position is not null loop
    if jobq.worker_is_waiting(name) then
      perform jobq.wake('work', name);
    end if;
  end loop;
  return null;
end $$;

create trigger pending_wake after insert on jobq.pending
  referencing new table as inserted
  for each statement when (pg_sequence_last_value('jobq.waiting_seq') >= extract(epoch from clock_timestamp()))
  execute function jobq.pending_wake();

-- lane_come adds hints (lane_hint) for keys of which a job became available, or which were resumed. If
-- the queue has had no keys until now, it tells idle workers to read the queue's settings.
create function jobq.lane_come(of_queue text, keys text[]) returns void
  language plpgsql
  as $$
begin
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if jobq.worker_is_waiting(of_queue) and not exists (select from jobq.lane l where l.queue = of_queue and l.key = '') then
    perform jobq.notify('settings', of_queue);
  end if;
end $$;

-- pending_after_insert tells the janitor when the earliest of the new jobs becomes due, and adds hints for claims of keys. It is
-- called only in transactions in which pending_before_insert has seen such a job. It is one trigger for both, because each insert
-- of a single job pays a few microseconds for every trigger with a WHEN.
create function jobq.pending_after_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  due timestamptz;
begin
  select min(i.run_at) into due from inserted i where i.position is null and i.waits is null;
  if due is not null then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
  perform jobq.lane_come(k.queue, k.keys)
    from (
      select i.queue, array_agg(distinct i.partition_key::text) as keys
        from inserted i where i.partition_key <> '' and i.position is not null
        group by i.queue
    ) k;
  return null;
end $$;

create trigger pending_after_insert after insert on jobq.pending
  referencing new table as inserted
  for each statement when (current_setting('jobq_pending.marked', true) = 'on')
  execute function jobq.pending_after_insert();

-- pending_after_update adds the same hints when a job with a key becomes available later, or goes to another queue. For the latter
-- it adds a hint for the key in the old queue, too (lane_hints_add).
create function jobq.pending_after_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if new.position is not null then
    perform jobq.lane_come(new.queue, array[new.partition_key::text]);
  end if;
  if old.queue <> new.queue then
    perform jobq.lane_hints_add(old.queue, array[old.partition_key::text], true);
  end if;
  return null;
end $$;

create trigger pending_after_update after update on jobq.pending
  for each row when (new.partition_key <> ''
    and (old.queue <> new.queue or new.position is not null and (old.position is null or old.partition_key <> new.partition_key)))
  execute function jobq.pending_after_update();

-- run_unique_key_drop releases the unique key of a job that has ended. Such a job always ends on its own row.
create function jobq.run_unique_key_drop() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.unique_key_drop(new.kind, new.unique_key, new.id);
  return null;
end $$;

create trigger run_unique_key_drop after update on jobq.run
  for each row when (new.unique_key is not null and new.state is not null and old.state is null)
  execute function jobq.run_unique_key_drop();
create trigger run_unique_key_drop_at_once after insert on jobq.run
  for each row when (new.unique_key is not null and new.state is not null)
  execute function jobq.run_unique_key_drop();

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.channel, jobq.notifications_full, jobq.notify, jobq.turn_take, jobq.turn_share, jobq.turn_wait, jobq.turn_forget, jobq.turn_holder, jobq.wake, jobq.waiting_group, jobq.worker_is_waiting, jobq.wait_announce, jobq.unique_key_try, jobq.unique_key_wait, jobq.unique_key_take, jobq.unique_key_problem, jobq.unique_key_drop,
  jobq.pending_json_require, jobq.pending_before_insert, jobq.pending_before_update, jobq.pending_wake, jobq.lane_come, jobq.pending_after_insert, jobq.pending_after_update, jobq.run_unique_key_drop
  from public;
