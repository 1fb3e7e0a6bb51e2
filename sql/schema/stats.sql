-- Counts and sums for charts.

-- Counts and sums for charts, so that charts never count job rows. Finishers
-- append to stat_delta in the transaction that finishes the jobs, and so never
-- wait for one another's row; the janitor rolls it up into stat by the minute.
create table jobq.stat_delta (
  minute      timestamptz      not null,
  run_seconds double precision not null default 0,
  wait_seconds double precision not null default 0,
  completed   integer          not null default 0,
  failed      integer          not null default 0,
  retried     integer          not null default 0,
  lost        integer          not null default 0,
  cancelled   integer          not null default 0,
  queue       text             not null,
  kind        text             not null
);
comment on table jobq.stat_delta is 'What is yet to be added to jobq.stat.';
alter table jobq.stat_delta replica identity full; -- as run

create table jobq.stat (
  minute      timestamptz      not null,
  run_seconds double precision not null,
  wait_seconds double precision not null,
  completed   bigint           not null,
  failed      bigint           not null,
  retried     bigint           not null,
  lost        bigint           not null,
  cancelled   bigint           not null,
  queue       text             not null,
  kind        text             not null,
  constraint stat_pkey primary key (minute, queue, kind)
);
comment on table jobq.stat is 'Sums by minute: read jobq.stats.';
-- Finding the sums of one queue, for queue_known.
create index stat_queue_idx on jobq.stat (queue, minute);

-- Charts read this: what is rolled up, and what is not yet.
create view jobq.stats as
  select s.minute, s.queue, s.kind, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
      sum(s.retried)::bigint as retried, sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
      sum(s.run_seconds) as run_seconds, sum(s.wait_seconds) as wait_seconds
    from (
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat
      union all
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds
          from jobq.stat_delta
    ) s
    group by s.minute, s.queue, s.kind;
comment on view jobq.stats is
  'How many jobs ended, by minute, queue and kind, and how long they ran and waited. For charts.';
comment on column jobq.stats.minute is 'Its beginning.';
comment on column jobq.stats.queue is 'Of the jobs.';
comment on column jobq.stats.kind is 'Of the jobs.';
comment on column jobq.stats.completed is 'Jobs that succeeded.';
comment on column jobq.stats.failed is 'Jobs that failed for good.';
comment on column jobq.stats.retried is 'Runs that failed and are tried again.';
comment on column jobq.stats.lost is 'Runs that were lost with their worker.';
comment on column jobq.stats.cancelled is 'Jobs that were cancelled.';
comment on column jobq.stats.run_seconds is 'How long those that ended ran, in all.';
comment on column jobq.stats.wait_seconds is 'How long these waited before, in all.';
