-- Settings of queues and kinds, and of the whole schema.

-- Settings per queue, obeyed by every worker and janitor, so that no two can
-- disagree. A queue without a row has the defaults.
create table jobq.queue (
  name             text        not null primary key,
  lease            interval    not null default jobq.lease_default(),
  extend_every     interval, -- null: a third of the lease
  -- What extends a lease: the worker's ticker, the job's own reports of
  -- progress, both, or nothing, which makes the lease the longest a run may take.
  heartbeat        text        not null default 'ticker',
  -- How long after its expiry a lease is left alone.
  stale_grace      interval    not null default '0',
  -- Where a job goes whose lease was taken away: back to its place at the head of
  -- the line, or to the tail, and there after a delay if one is set.
  redelivery       text        not null default 'tail',
  redelivery_delay interval    not null default '0',
  -- Whether the next run begins without the checkpoint of a run that was lost.
  reset_on_reap    boolean     not null default false,
  -- How many runs of a job may be lost without using an attempt, unless the job has a max_lost of its own; null: each
  -- uses one.
  max_lost         integer,
  -- How many jobs of the queue may run at once, over all workers; null for no limit.
  max_running      integer,
  -- How many jobs of each partition key may run at once, over all workers; null for no limit.
  key_limit        integer,
  -- Whether the jobs of a key run in the order of their line, and what one does to the next that waits for its retry
  -- (hold, pass), or has failed (stop); null for no order. See lane_next.
  key_order        text,
  -- What ends the group of a key: acme/1 and acme/2 are of the group acme where it is '/'. Groups have equal shares of
  -- the queue, however many keys they have; null: each key is one. See key_group.
  key_separator    text,
  -- How many jobs of the queue may start in each period, over all workers, and how
  -- many more at once when few have started before; null for no limit, and for the
  -- burst that rate_burst_default says. See queue_admit.
  rate_jobs        integer,
  rate_period      interval,
  rate_burst       integer,
  -- The same for the jobs of each partition key: see lane_claim.
  key_rate_jobs    integer,
  key_rate_period  interval,
  key_rate_burst   integer,
  -- How long the first job of a priority waits before the priority has its turns among
  -- more urgent ones; 0: for ever. See LineAged.
  age_after        interval    not null default jobq.age_after_default(),
  -- How long finished jobs of the queue are kept, and those of them that failed or were cancelled; null: as long as the
  -- others of the queue, and else as setting says. See history_sweep.
  retention        interval,
  failed_retention interval,
  paused_at        timestamptz,
  paused_by        text,
  pause_reason     text,
  created_at       timestamptz not null default now(),
  constraint "queue must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "lease must be 1 second to 30 days" check (lease between interval '1 s' and interval '30 days'),
  constraint "extend_every must be positive and at most half of lease"
    check (extend_every > interval '0' and extend_every <= lease / 2),
  constraint "heartbeat must be ticker, progress, both or off"
  check (heartbeat in ('ticker', 'progress', 'both', 'off')), constraint "stale_grace must be 0 to 30 days"
  check (stale_grace between interval '0' and interval '30 days'), constraint "redelivery must be head or tail"
  check (redelivery in ('head', 'tail')), constraint "redelivery_delay must be 0 to 30 days"
      check (redelivery_delay between interval '0' and interval '30 days'),
  -- A job that waits has no place at the head.
  constraint "redelivery_delay needs redelivery tail"
    check (redelivery = 'tail' or redelivery_delay = interval '0'),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024),
  constraint "max_lost must be 1 to 32767" check (max_lost between 1 and 32767),
  constraint "max_running must be 1 to 1000000" check (max_running between 1 and 1000000),
  constraint "key_limit must be 1 to 10000" check (key_limit between 1 and 10000),
  constraint "key_order must be hold, pass or stop" check (key_order in ('hold', 'pass', 'stop')),
  constraint "key_order needs key_limit 1" check (key_order is null or key_limit is not distinct from 1),
  constraint "key_separator must be 1 to 8 characters" check (char_length(key_separator) between 1 and 8),
  constraint "rate_jobs must be 1 to 1000000" check (rate_jobs between 1 and 1000000),
  constraint "rate_period must be 1 second to 30 days"
  check (rate_period between interval '1 s' and interval '30 days'),
  constraint "rate_jobs and rate_period come together"
  check ((rate_jobs is null) = (rate_period is null)), constraint "rate_burst must be 1 to 1000000"
  check (rate_burst between 1 and 1000000), constraint "rate_burst needs rate_jobs"
  check (rate_burst is null or rate_jobs is not null), constraint "key_rate_jobs must be 1 to 1000000"
  check (key_rate_jobs between 1 and 1000000), constraint "key_rate_period must be 1 second to 30 days"
  check (key_rate_period between interval '1 s' and interval '30 days'),
      constraint "key_rate_jobs and key_rate_period come together"
  check ((key_rate_jobs is null) = (key_rate_period is null)), constraint "key_rate_burst must be 1 to 1000000"
  check (key_rate_burst between 1 and 1000000), constraint "key_rate_burst needs key_rate_jobs"
  check (key_rate_burst is null or key_rate_jobs is not null), constraint "age_after must be 0 to 30 days"
  check (age_after between interval '0' and interval '30 days'),
      constraint "lease, grace, delays and periods must be without months" check
    (not jobq.has_months(array[lease, extend_every, stale_grace, redelivery_delay, rate_period, key_rate_period,
        age_after])),
  constraint "retention must be 1 day to 10 years" check (retention between interval '1 day' and interval '10 years'),
  constraint "failed_retention must be 1 day to 10 years"
  check (failed_retention between interval '1 day' and interval '10 years')
);
comment on table jobq.queue is
  'Settings of queues. One without a row has the defaults. Change them with jobq.act_queue_set.';
comment on column jobq.queue.name is 'The queue.';
comment on column jobq.queue.lease is 'How long a claim lasts unless it is extended.';
comment on column jobq.queue.extend_every is 'How often workers extend it; null: each third of the lease.';
comment on column jobq.queue.heartbeat is 'What extends a lease: ticker, progress, both or off.';
comment on column jobq.queue.stale_grace is 'How long after its end a lease is left alone.';
comment on column jobq.queue.redelivery is 'Where a lost job goes: head or tail of the line.';
comment on column jobq.queue.redelivery_delay is 'And after which delay.';
comment on column jobq.queue.reset_on_reap is 'Whether a lost run''s checkpoint is dropped.';
comment on column jobq.queue.max_lost is
  'How many runs of a job may be lost without using an attempt, unless the job says it; null: each uses one.';
comment on column jobq.queue.max_running is 'How many jobs run at once, over all workers; null: no limit.';
comment on column jobq.queue.key_limit is 'How many of each partition key; null: no limit.';
comment on column jobq.queue.key_order is 'Strict order within a key: hold, pass or stop; null: none.';
comment on column jobq.queue.key_separator is
  'What ends the group of a partition key; groups have equal shares. Null: each key is a group.';
comment on column jobq.queue.rate_jobs is 'How many jobs may start in each rate_period; null: any number.';
comment on column jobq.queue.rate_period is 'See rate_jobs.';
comment on column jobq.queue.key_rate_jobs is
  'How many jobs of each partition key may start in each key_rate_period; null: any number.';
comment on column jobq.queue.key_rate_period is 'See key_rate_jobs.';
comment on column jobq.queue.key_rate_burst is
  'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.rate_burst is 'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.age_after is
  'How long the first job of a priority waits before it gets turns among more urgent ones; 0: for ever.';
comment on column jobq.queue.retention is
  'How long finished jobs of the queue are kept, at least; null: as finished_retention says.';
comment on column jobq.queue.failed_retention is
  'And those of them that failed or were cancelled; null: as retention says, or else failed_retention of all queues.';
comment on column jobq.queue.paused_at is 'Since when nothing is claimed; null: it is not paused.';
comment on column jobq.queue.paused_by is 'Who paused it.';
comment on column jobq.queue.pause_reason is 'And why.';
comment on column jobq.queue.created_at is 'When the row was made.';
-- Of 100,000 queues, those with a retention of their own: see retention_span.
create index queue_retention_idx on jobq.queue (name) where retention is not null or failed_retention is not null;

-- The kinds that are paused, in all queues, and those whose workers have crashed of
-- late: see kinds_crashed. Other kinds have no row: every claim reads this table.
create table jobq.kind (
  name         text        not null primary key,
  crashes      smallint    not null default 0, -- in a row
  crashed_at   timestamptz, -- when the last of them was found
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  -- Hosts whose workers were lost with runs of it and that have not come back, and when each crash was found: see
  -- kinds_crashed.
  gone_hosts   text[]      not null default '{}',
  gone_at      timestamptz[] not null default '{}',
  constraint "kind must be 1 to 128 characters" check (char_length(name) between 1 and 128),
  constraint "pause_reason must be at most 1024 characters" check (char_length(pause_reason) <= 1024)
);
comment on table jobq.kind is
  'Kinds that are paused, or whose workers have crashed of late. Change them with jobq.act_kind.';
comment on column jobq.kind.name is 'The kind.';
comment on column jobq.kind.crashes is 'How many times in a row workers crashed that ran it.';
comment on column jobq.kind.crashed_at is 'When the last of these was found.';
comment on column jobq.kind.paused_at is 'Since when no job of it is claimed; null: it is not paused.';
comment on column jobq.kind.paused_by is 'Who paused it; jobq: a quarantine.';
comment on column jobq.kind.pause_reason is 'And why.';
comment on column jobq.kind.gone_hosts is
  'Hosts that were lost with runs of it and have not come back: their losses do not count as crashes of the kind.';
comment on column jobq.kind.gone_at is 'Beside each, when that was found.';
-- What every claim reads.
create index kind_paused_idx on jobq.kind (name) where paused_at is not null;

-- Settings of the whole schema: one row.
create table jobq.setting (
  singleton          boolean  not null primary key default true check (singleton),
  finished_retention interval not null default '7 days',
  -- Of jobs that failed or were cancelled; null: as finished_retention.
  failed_retention   interval,
  -- After how many crashes in a row a kind is paused; 0: never.
  quarantine_crashes smallint not null default 5,
  -- Whether a day of the history stays until it has been exported, and the day before which
  -- all were. At first it is the first day that there can be.
  keep_until_exported boolean not null default false,
  exported_before    date     not null default date '2026-01-01',
  -- The day of which an export has begun last, and when: null again when one of its jobs, or
  -- their attempts, has come back since. See export_begin.
  export_day         date,
  export_began_at    timestamptz,
  constraint "finished_retention must be 1 day to 10 years"
    check (finished_retention >= interval '1 day' and finished_retention <= interval '10 years'),
  constraint "failed_retention must be 1 day to 10 years"
    check (failed_retention >= interval '1 day' and failed_retention <= interval '10 years'),
  constraint "quarantine_crashes must be 0 to 1000" check (quarantine_crashes between 0 and 1000),
  constraint "exported_before must be in the years 2026 to 9999"
  check (exported_before between date '2026-01-01' and date '9999-12-31')
);
comment on table jobq.setting is 'Settings of the whole schema: one row. Change them with jobq.act_settings.';
comment on column jobq.setting.singleton is 'Always true.';
comment on column jobq.setting.finished_retention is 'How long finished jobs are kept, at least.';
comment on column jobq.setting.failed_retention is
  'And those that failed or were cancelled; null: as finished_retention.';
comment on column jobq.setting.quarantine_crashes is 'After how many crashes in a row a kind is paused; 0: never.';
comment on column jobq.setting.keep_until_exported is 'Whether days of the history stay until they were exported.';
comment on column jobq.setting.exported_before is 'All days before this one were.';
comment on column jobq.setting.export_day is 'The day of which an export has begun last.';
comment on column jobq.setting.export_began_at is 'When; null: not, or one of its jobs has come back since.';
insert into jobq.setting default values;

-- queue_known says whether a queue of that name is known: by settings, a waiting or running
-- job, a worker that serves it, or a job that ended within the
-- 30 days for which stat is kept. It looks first where it is quickest, and
-- stops at the first sign. Each look is a statement of its own, so
-- a locked table does not matter to a queue that was found before.
--
-- Where no index has the queue, it reads 10,000 rows at most: of the scheduled jobs those that are due next, of the
-- jobs that wait for others the oldest, and sums that are not rolled up yet. Of jobs that failed or were cancelled, it
-- reads the latest 1,000. The orders are for the planner. Without them it would read the whole table where it expects
-- to find the queue soon, and sort all settings where it expects few.
create function jobq.queue_known(queue text) returns boolean
  language plpgsql stable set enable_sort = off set enable_bitmapscan = off set jit = off
  as $$
begin
  if exists (select from jobq.queue q where q.name = queue_known.queue) then
    return true;
  end if;
  perform from jobq.pending p where p.queue = queue_known.queue and p.position is not null
    order by p.partition_key, p.priority, p.position limit 1;
  if found then
    return true;
  end if;
  if exists (select from jobq.lease l where l.queue = queue_known.queue)
      or exists (select from jobq.worker w where w.queues ? queue_known.queue) then
    return true;
  end if;
  if exists (
      select from (select p.queue from jobq.pending p where p.position is null and p.waits is null
          order by p.run_at limit 10000) due
        where due.queue = queue_known.queue)
      or exists (
        select from (select p.queue from jobq.pending p where p.waits order by p.id limit 10000) waits
          where waits.queue = queue_known.queue) then
    return true;
  end if;
  perform from jobq.stat s where s.queue = queue_known.queue order by s.minute desc limit 1;
  if found then
    return true;
  end if;
  return exists (select from (select d.queue from jobq.stat_delta d limit 10000) fresh
      where fresh.queue = queue_known.queue)
    or exists (
      select from (select r.queue from jobq.run r where r.state <> 'completed'
          order by r.finished_at desc limit 1000) ended
        where ended.queue = queue_known.queue);
end $$;
