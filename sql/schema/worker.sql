-- The processes that run jobs and look after them.

-- One row per worker process.
create table jobq.worker (
  id           text        not null primary key,
  started_at   timestamptz not null default now(),
  heartbeat_at timestamptz not null default now(),
  drain_requested_at timestamptz, -- an operator wants it to take no new work, and leave
  process_start bigint, -- in clock ticks since boot, tells a pid from its next use; null where unknown
  pid          integer     not null,
  connections_max integer, -- how many connections it may open; null: not known
  draining     boolean     not null default false,
  has_room     boolean     not null default false, -- free slots, when it last beat
  present      boolean     not null default false, -- it holds its presence lock
  hostname     text        not null,
  boot_id      text,
  pid_namespace text,
  version      text        not null,
  queues       jsonb       not null,
  kinds        text[]      not null,
  -- of kinds that have slots of their own, in each queue; null: an earlier version of jobq, which does not tell
  kind_slots   jsonb,
  keys         text[]      not null default '{}', -- names of the keys with which it can decrypt
  programs     jsonb       not null default '{}', -- what they have done, by kind: see monitor.Programs
  outcomes     jsonb       not null default '{}', -- of its last runs, by kind: see worker/internal/resting
  constraint "worker id must be 1 to 255 characters" check (char_length(id) between 1 and 255)
) with (fillfactor = 50);
comment on table jobq.worker is 'Processes that run jobs: a row for each, while it lives and for a while after.';
comment on column jobq.worker.id is 'Its name, which leases have as their owner.';
comment on column jobq.worker.started_at is 'When it began.';
comment on column jobq.worker.heartbeat_at is 'When it last said that it lives, every 10 seconds.';
comment on column jobq.worker.drain_requested_at is 'When somebody asked it to finish and leave; null: nobody did.';
comment on column jobq.worker.process_start is
  'With pid and boot_id, tells the process from later ones; null: not known.';
comment on column jobq.worker.pid is 'Of the process.';
comment on column jobq.worker.connections_max is
  'How many connections to the server it may open; null: not known, as behind a pooler.';
comment on column jobq.worker.draining is 'Whether it takes no new jobs.';
comment on column jobq.worker.has_room is 'Whether it had free slots.';
comment on column jobq.worker.present is 'Whether it holds a lock that says it is there.';
comment on column jobq.worker.hostname is 'Of its machine.';
comment on column jobq.worker.boot_id is 'Of its machine; null: not known.';
comment on column jobq.worker.pid_namespace is 'In which pid counts; null: not known.';
comment on column jobq.worker.version is 'Of jobq, or of the program with it.';
comment on column jobq.worker.queues is 'Slots by queue, as a JSON object.';
comment on column jobq.worker.programs is 'What its programs have done, by kind, as a JSON object.';
comment on column jobq.worker.outcomes is 'How its last runs of each kind ended, as a JSON object, for other workers.';
comment on column jobq.worker.kinds is 'That it has handlers for.';
comment on column jobq.worker.kind_slots is
  'Slots by kind, in each queue, as a JSON object: of kinds that have slots of their own; null: not known.';
comment on column jobq.worker.keys is 'Names of the keys with which it can decrypt.';

-- The hosts whose workers claim nothing, also workers that start later: a host that is held need not have one. Workers
-- read it with each heartbeat, and claims do not.
create table jobq.held_host (
  host        text        not null,
  held_at     timestamptz not null default clock_timestamp(),
  held_by     text        not null,
  hold_reason text,
  constraint held_host_pkey primary key (host),
  constraint "host must be 1 to 255 characters" check (char_length(host) between 1 and 255),
  constraint "hold_reason must be at most 1024 characters" check (char_length(hold_reason) <= 1024)
);
comment on table jobq.held_host is 'Hosts whose workers claim nothing. Change them with jobq.act_host.';
comment on column jobq.held_host.host is 'As workers write it: jobq.worker.hostname.';
comment on column jobq.held_host.held_at is 'Since when its workers claim nothing.';
comment on column jobq.held_host.held_by is 'Who holds it.';
comment on column jobq.held_host.hold_reason is 'And why.';

-- One row at most: when a janitor last said that it lives. A session lock cannot tell, since
-- janitors behind a pooler hold none.
create table jobq.janitor_seen (
  one     boolean     not null default true primary key check (one),
  seen_at timestamptz not null,
  janitor text        not null -- the id of the one that said so
) with (fillfactor = 50);
comment on table jobq.janitor_seen is 'When a janitor last said that it lives: one row, or none before the first time.';
comment on column jobq.janitor_seen.one is 'Keeps it at one row.';
comment on column jobq.janitor_seen.seen_at is 'When that was: every 10 seconds while at least one janitor runs.';
comment on column jobq.janitor_seen.janitor is 'The name of the janitor that said so.';
