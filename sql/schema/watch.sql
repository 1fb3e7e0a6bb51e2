-- Who watches. Workers send digests of what they do only while somebody does.

-- A watcher's lease, which it renews while it watches.
create table jobq.watcher (
  id         text        not null primary key,
  expires_at timestamptz not null,
  constraint "watcher id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
);
comment on table jobq.watcher is 'Who watches, and until when.';

-- What workers tell watchers. The notification carries only the id of the row:
-- whoever may log in can listen, and this table can be kept from producers. Each
-- worker keeps its last few rows, for as long as somebody watches. They are worth
-- nothing after a crash.
create unlogged table jobq.digest (
  id      bigint      generated always as identity primary key,
  told_at timestamptz not null default clock_timestamp(),
  digest  text        not null,
  constraint "digest must be at most 8000 bytes" check (octet_length(digest) <= 8000)
);
comment on table jobq.digest is 'What workers tell who watches: rows that live for seconds.';
comment on column jobq.digest.id is 'Told to listeners.';
comment on column jobq.digest.told_at is 'When.';
comment on column jobq.digest.digest is 'Starts and ends of jobs since the last one.';

-- tell adds a digest, deletes earlier ones of the caller, and returns the id. It passes by those that a watcher's
-- transaction is deleting.
create function jobq.tell(digest text, forget bigint[]) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  told bigint;
begin
  delete from jobq.digest d
    where d.id = any(array(select x.id from jobq.digest x where x.id = any(tell.forget) for update skip locked));
  insert into jobq.digest (digest) values (tell.digest) returning id into told;
  perform jobq.notify('event', told::text);
  return told;
end $$;

-- watch renews a watcher's lease, for a minute at most. It deletes the leases that have run out, and digests older
-- than a minute, which workers that have ended leave behind. If the watcher is new, it notifies workers at once, so
-- that they read this table; otherwise they would do so with their next heartbeat.
--
-- No role has rights in the two tables, because workers read one and write the other: a lock or an odd row would stop
-- them. So watch waits for no row of others, and there are at most 1,000 watchers.
create function jobq.watch(id text, lease interval) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$
declare
  is_new boolean;
begin
  delete from jobq.watcher w
    where w.id = any(array(select x.id from jobq.watcher x
        where x.expires_at < clock_timestamp() for update skip locked));
  delete from jobq.digest d
    where d.id = any(array(
      select x.id from jobq.digest x where x.told_at < statement_timestamp() - interval '1 min'
          for update skip locked));
  is_new := not exists (select from jobq.watcher w where w.id = watch.id);
  if is_new and (select count(*) from jobq.watcher) >= 1000 then
    raise sqlstate 'JQ001' using message = 'there are 1000 watchers, which is the most that there may be';
  end if;
  insert into jobq.watcher as w (id, expires_at)
    values (watch.id, clock_timestamp() + least(greatest(watch.lease, interval '0'), interval '1 min'))
    on conflict on constraint watcher_pkey do update set expires_at = excluded.expires_at;
  if is_new then
    perform jobq.notify('watch', '');
  end if;
end $$;

-- watch_end says that a watcher has gone.
create function jobq.watch_end(id text) returns void
  language sql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '1s'
  as $$ delete from jobq.watcher w where w.id = watch_end.id $$;
