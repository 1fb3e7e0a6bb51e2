-- Who waits for new jobs, and how they hear of them.

-- Until when a worker waits for notifications of new jobs, as the epoch in
-- seconds: of any queue, and of the queues of each of sixteen groups, into which
-- queues fall by a hash of their names. Sequences, because their values are read as
-- they are and not as of a snapshot, whatever the isolation level: see pending_wake.
create sequence jobq.waiting_seq as bigint minvalue 0 start 0;

do $$
begin
  for number in 0..15 loop
    execute format('create sequence jobq.waiting_%s_seq as bigint minvalue 0 start 0', number);
  end loop;
end $$;

-- Until when the janitor sleeps at most, as the epoch in milliseconds: who adds a job that is due later wakes no
-- janitor. See sleep_announce.
create sequence jobq.asleep_seq as bigint minvalue 0 start 0;

-- channel is the name of a NOTIFY channel. The hash makes it differ between two schemas of one database, and keeps it
-- below 64 bytes, whatever the schema is called. db.Channel is the same in Go.
--
--   work, head         the id of the transaction, and the name of a queue (wake)
--   taken              which notifications of a queue are answered (worker/internal/waking)
--   due                when the earliest new job becomes due, in seconds since 1970; negative: see act_lost
--   cancel             the id of a job
--   drain              the id of a worker
--   room, settings     the name of a queue
--   event              the id of a digest (tell)
--   ended              ids of jobs (waiters_wake)
--   watch, schedule    nothing
--
-- Any role can send and hear all of these. So a payload is only a hint, and holds nothing secret but the names of
-- queues.
create function jobq.channel(topic text) returns text
  language sql immutable parallel safe
  return 'jobq_' || topic || '_' || left(md5('jobq.'), 16);

-- notifications_full says whether the server's queue of notifications is almost full. When it is full, each transaction
-- that notifies fails. Any login can fill it, by a session that listens and does not end its transaction.
create function jobq.notifications_full() returns boolean
  language sql
  return pg_notification_queue_usage() > 0.9;

-- notify_is_off says whether the session or transaction has asked for no notifications (SET jobq.notify = off), as one
-- must that ends with PREPARE TRANSACTION: PostgreSQL prepares none that has notified. The name of the setting is the
-- same in every schema, so it is written in two parts.
create function jobq.notify_is_off() returns boolean
  language sql stable
  return coalesce(lower(current_setting('jobq' || '.notify', true)) in ('off', 'false', 'no', '0'), false);

-- notify sends a notification, unless the transaction wants none, or their queue is almost full: a job is worth more
-- than a notification of it, and whoever listens looks for work by itself after a while. It costs 0.2 µs with 10
-- sessions that listen, and 1 µs with 200.
create function jobq.notify(topic text, payload text) returns void
  language sql
  return case when not jobq.notify_is_off() and not jobq.notifications_full()
    then pg_notify(jobq.channel(topic), payload) end;

-- wake tells workers that a queue has available jobs (work), or that it has some at places where workers have already
-- looked (head). The payload has the transaction's id, which tells notifications apart: a worker that has claimed after
-- one, and left nothing, says so to the others (worker/internal/waking).
create function jobq.wake(topic text, queue text) returns void
  language sql
  return jobq.notify(topic, pg_current_xact_id()::text || ' ' || left(queue, 1000)); -- a payload has at most 8000 bytes

-- waiting_group is the sequence that says until when a worker waits for jobs of a queue, and perhaps of others of its
-- group.
create function jobq.waiting_group(of_queue text) returns regclass
  language sql stable
  return ('jobq.waiting_' || (hashtext(of_queue) & 15) || '_seq')::regclass;

-- worker_is_waiting says whether a worker has announced that it waits for jobs of a queue, or of another one of the
-- same group.
create function jobq.worker_is_waiting(of_queue text) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return coalesce(pg_sequence_last_value(jobq.waiting_group(of_queue)) >= extract(epoch from clock_timestamp()), false);
end $$;

-- wait_announce announces, for so many seconds from now, an hour at most, that a worker waits for jobs of a queue:
-- inserts then notify. It returns whether none waited before. In that case an insert that has already looked, and has
-- not committed yet, does not notify. Workers take turns, since a shorter announcement could take the place of a longer
-- one otherwise; a fleet of idle workers mostly finds that another one holds as long, and needs no turn. Who does not
-- get the turn within a second announces without it: the other worker then has to poll, at worst. It also adds the
-- queue's bell (pending_wake). The commit does not wait for the disk: if the server crashes, the worker loses its
-- connections, and announces anew.
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
  if jobq.turn_take('announce', 1000) then
    insert into jobq.turn (name, part) values ('bell ' || of_queue, 0) on conflict do nothing;
  end if;
  perform set_config('synchronous_commit', 'off', true);
  before := coalesce(pg_sequence_last_value(group_seq), 0);
  perform setval(group_seq, greatest(before, until));
  perform setval('jobq.waiting_seq', greatest(coalesce(pg_sequence_last_value('jobq.waiting_seq'), 0), until));
  return before < extract(epoch from clock_timestamp());
end $$;

-- line_changers are the transactions that have written rows of pending and are not visible yet. Who adds a job has
-- locked the table, and its transaction's id, until that moment. Locks are read as they are, and not as of a snapshot,
-- which does not list the youngest transactions.
create function jobq.line_changers() returns setof text
  language sql
  begin atomic
    with locks as materialized (select l.virtualtransaction, l.transactionid, l.mode, l.relation, l.database
        from pg_locks l)
    select x.transactionid::text from locks x
      where x.transactionid is not null and x.mode = 'ExclusiveLock' and exists (
        select from locks t where t.virtualtransaction = x.virtualtransaction and t.mode = 'RowExclusiveLock'
          and t.relation = 'jobq.pending'::regclass and t.database = (select d.oid from pg_database d
              where d.datname = current_database()));
  end;

-- sleep_announce announces that the janitor looks at scheduled jobs again in so many milliseconds at the latest, an
-- hour at most. It returns the transactions that may have added jobs before they could see it (line_changers). They are
-- asked for after the announcement: a transaction that is not among them is visible to a look that comes then, or has
-- seen the announcement.
create function jobq.sleep_announce(ms bigint) returns setof text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  perform setval('jobq.asleep_seq', greatest(pg_sequence_last_value('jobq.asleep_seq'),
    floor(extract(epoch from clock_timestamp()) * 1000)::bigint + least(greatest(ms, 0), 3600000)));
  return query select x from jobq.line_changers() x;
end $$;

-- pending_wake wakes workers of the queue of new available jobs when their transaction commits, unless another
-- transaction that commits at this moment wakes them: PostgreSQL lets one commit with a notification pass at a time,
-- and each waits until the one before is on the disk. So who notifies locks the queue's bell, a row of jobq.turn, and
-- who finds it locked does not notify.
--
-- No wake-up is lost:
-- - a worker says that it waits (1), looks which transactions that have added jobs are open
--   (2: line_changers), and claims (3);
-- - an insert adds the job, looks whether somebody waits (4), tries to lock the bell (5), and
--   commits (6).
-- If (4) came before (1), the insert's transaction had the job already, and was open at (2) or had ended before: either
-- (3) finds the job, or the worker claims again when the transactions that it saw at (2) have ended. If (5) finds the
-- bell locked, its holder is not visible yet, since a row is locked until the moment in which its locker becomes
-- visible. When its notification arrives, the worker looks again which transactions are open: (2) and (3) come after
-- (5) then, too. internal/db has the interleavings as a test.
--
-- Only wait_announce adds a bell: without one, each insert notifies. A transaction that asks for SET CONSTRAINTS
-- IMMEDIATE keeps its bell until it ends. It has no use of it when others have begun 100 transactions since.
create function jobq.pending_wake() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  bell constant text := 'bell ' || new.queue;
begin
  if jobq.notify_is_off() then -- nor may a transaction that is prepared keep the bell
    return null;
  end if;
  -- worker_is_waiting
  if pg_sequence_last_value(jobq.waiting_group(new.queue)) >= extract(epoch from clock_timestamp()) then
    perform from jobq.turn t where t.name = bell and t.part = 0 for no key update skip locked;
    if found or not exists (select from jobq.turn t where t.name = bell and t.part = 0 and age(t.xmax) < 100) then
      perform jobq.wake('work', new.queue);
    end if;
  end if;
  return null;
end $$;
-- The WHEN looks whether somebody waits for jobs of any queue, with the rights of the role that inserts: to call a
-- function costs more than the row. It asks after the row is there, so that the transaction has its id, and once for
-- each queue, unless the rows of several come in turns.
create constraint trigger pending_wake after insert on jobq.pending deferrable initially deferred
  for each row when (new.position is not null
    and current_setting('jobq_pending.asked', true) is distinct from new.queue::text
    and set_config('jobq_pending.asked', new.queue, true) is not null
    and pg_sequence_last_value('jobq.waiting_seq') >= extract(epoch from clock_timestamp()))
  execute function jobq.pending_wake();
