-- The tables of the prototype: those of jobs are jobq's own, with their widths, indexes and domains; the keys have three.
drop schema if exists proto cascade;
create schema proto;

create table proto.pending (like jobq.pending including all);
alter table proto.pending set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- lease: as jobq.lease, and the key of all its jobs ('' for none). The index that today finds the leases of a queue finds those of a key, too.
create table proto.lease (
  id          bigint      not null,
  claimed_at  timestamptz not null,
  expires_at  timestamptz not null,
  lost_at     timestamptz,
  begun       smallint    not null default 32767,
  owner       text        not null,
  queue       text        not null,
  key         text        not null default '',
  ended_slots smallint[]  not null default '{}',
  ended_ms    smallint[]  not null default '{}',
  job_ids     bigint[]    not null,
  constraint lease_pkey primary key (id)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
alter table proto.lease alter job_ids set storage external, alter ended_slots set storage main, alter ended_ms set storage main;
create index lease_key_idx on proto.lease (queue, key);

create table proto.past_lease (
  id         bigint      not null,
  claimed_at timestamptz not null,
  owner      text        not null,
  ended      smallint[]  not null,
  constraint past_lease_pkey primary key (id)
) partition by range (id);
create table proto.past_lease_default partition of proto.past_lease default;

create table proto.run (like jobq.run including defaults including constraints) partition by range (lease_id);
create table proto.run_default partition of proto.run default;
create index run_id_idx on proto.run (id);
create index run_unsuccessful_idx on proto.run (finished_at, id) include (queue, state) where state <> 'completed';
create index run_completed_idx on proto.run (finished_at, id) where state = 'completed';
create index run_cancel_idx on proto.run (lease_id) where cancel_requested_at is not null and state is null;

create table proto.stat_delta (like jobq.stat_delta);

-- What of a queue's settings the keys need.
create table proto.queue (
  name      text not null primary key,
  key_limit integer,
  rate_step interval, -- one job of a key each so long
  rate_burst integer,
  key_order text, -- hold, pass, stop
  separator text
);

-- The lock of a queue: whoever claims jobs of keys, or changes the settings of keys, has it until the commit. clock is the virtual
-- time of its groups.
create table proto.queue_lock (
  queue text not null primary key,
  clock float8 not null default 0
) with (fillfactor = 10);

-- A lane is awake (reason is null), or asleep until a time:
--   f  full: as many jobs run as the limit allows             a hint wakes it
--   r  rate: it has used its burst                             only its time wakes it
--   h  held: its head waits for a retry, or has failed         a hint wakes it
--   p  paused                                                  a hint wakes it, if the key is not paused any more
--   e  empty: no job of it is in the line                      a hint wakes it; deleted when its time has come
-- A lost hint costs f and h two minutes. Their time is a whole minute, so that it seldom changes.
create table proto.lane (
  queue        text   not null,
  key          text   not null,
  group_name   text   not null default '', -- '' for all, in a queue without a separator
  rank         float8 not null, -- virtual time within the group: the least goes first
  spent        float8 not null default 0, -- to be added to rank when it wakes. A full lane that wakes, gives a job and is full again writes no index
  reason       "char",
  asleep_until timestamptz,
  rate_at      timestamptz, -- when its whole burst is free again
  head_job     bigint, -- of a key with an order: what was claimed last
  head_lease   bigint,
  constraint lane_pkey primary key (queue, key),
  constraint "awake or asleep" check ((reason is null) = (asleep_until is null))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index lane_awake_idx on proto.lane (queue, group_name, rank, key) where reason is null;
create index lane_asleep_idx on proto.lane (queue, reason, asleep_until) where reason is not null;

-- A group has the virtual time of its lanes (clock), and its own (rank). A queue without a separator has one group, ''.
create table proto.key_group (
  queue text    not null,
  name  text    not null,
  rank  float8  not null,
  clock float8  not null,
  awake boolean not null,
  constraint key_group_pkey primary key (queue, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index key_group_awake_idx on proto.key_group (queue, rank) where awake;

create table proto.lane_hint (
  id    bigint not null generated always as identity,
  queue text   not null,
  key   text   not null,
  constraint lane_hint_pkey primary key (queue, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

create table proto.key_weight (queue text not null, key text not null, weight smallint not null, primary key (queue, key));
create table proto.paused_key (queue text not null, key text not null, primary key (queue, key));

create sequence proto.lease_number_seq as bigint;

-- The triggers of inserts and of what becomes available later, as jobq's own: one hint for each key of the statement.
create function proto.pending_after_insert() returns trigger language plpgsql as $$
begin
  insert into proto.lane_hint (queue, key)
    select distinct i.queue::text, i.partition_key::text from inserted i where i.partition_key <> '' and i.position is not null;
  return null;
end $$;
create trigger pending_after_insert after insert on proto.pending referencing new table as inserted
  for each statement execute function proto.pending_after_insert();
create function proto.pending_after_update() returns trigger language plpgsql as $$
begin
  insert into proto.lane_hint (queue, key) values (new.queue, new.partition_key);
  return null;
end $$;
create trigger pending_after_update after update on proto.pending
  for each row when (new.partition_key <> '' and new.position is not null and old.position is null)
  execute function proto.pending_after_update();
