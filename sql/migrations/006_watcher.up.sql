-- Who watches. Workers send digests of what they do only while somebody does.
set local lock_timeout = '5s';

-- A watcher's lease, which it renews while it watches.
create table jobq.watcher (
  id         text        not null primary key,
  expires_at timestamptz not null,
  constraint "watcher id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
);

-- watch renews a watcher's lease and forgets those that have run out. Of a new
-- watcher it tells workers at once, which then look into this table; they would
-- otherwise do so with their next heartbeat.
create function jobq.watch(id text, lease interval) returns void
  language plpgsql
  as $$
declare
  is_new boolean;
begin
  delete from jobq.watcher w where w.expires_at < clock_timestamp();
  is_new := not exists (select from jobq.watcher w where w.id = watch.id);
  insert into jobq.watcher as w (id, expires_at) values (watch.id, clock_timestamp() + watch.lease)
    on conflict on constraint watcher_pkey do update set expires_at = excluded.expires_at;
  if is_new then
    perform pg_notify(jobq.channel('watch'), '');
  end if;
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.watch
  from public;
