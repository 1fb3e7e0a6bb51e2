-- Days of the history that are stored elsewhere before they go: see docs/decisions/0021.

-- export_first is the next day to be exported: all days before it were exported, or have nothing to export.
-- If there is no history, it is exported_before. Needs run_default_place_idx and
-- attempt_default_finished_at_idx.
create function jobq.export_first() returns date
  language sql stable
  as $$
    select greatest(s.exported_before, least(
        (select min(to_date(right(c.relname, 8), 'YYYYMMDD'))
          from pg_inherits i
          join pg_class c on c.oid = i.inhrelid
          where i.inhparent in ('jobq.run'::regclass, 'jobq.attempt'::regclass)
            and c.relname ~ '^(run|attempt)_[0-9]{8}$'),
        (select date '2026-01-01' + (r.lease_id >> 40)::integer from jobq.run_default r
            order by r.lease_id, r.id limit 1),
        (select (a.finished_at at time zone 'UTC')::date from jobq.attempt_default a order by a.finished_at limit 1)))
      from jobq.setting s
  $$;

-- export_begin notes that the export of a day begins, and returns when: export_end asks for
-- it. It raises an error if something can still be added to the day:
--
--   12 Nov 00:05  the 11th is not over for long enough: some transaction may still write
--   12 Nov 00:30  a job that was claimed on the 11th runs: its lease is held
--   12 Nov 01:00  nothing runs; the lock on the day proves that no transaction writes
--
-- From then on, rows leave the day when jobs are requeued or deleted, and come back only by an
-- undo, which calls export_again. The lock is held for this transaction only. It is tried 50
-- times, 200 ms apart. Each try waits for at most 100 ms, since ends of jobs wait behind it. A
-- vacuum of the day prevents the lock as well.
create function jobq.export_begin(day date) returns timestamptz
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  low bigint := jobq.lease_day(day);
  high bigint := jobq.lease_day(day + 1);
  days text[];
  name text;
  tries integer := 0;
  began timestamptz;
begin
  if day is null or day < date '2026-01-01' or day > date '9999-12-30' then
    raise sqlstate 'JQ001'
        using message = format('the day must be in the years 2026 to 9999, not %s', coalesce(day::text, 'null'));
  end if;
  if clock_timestamp() < (day + 1)::timestamp at time zone 'UTC' + interval '10 minutes' then
    raise sqlstate 'JQ003'
        using message = format('%s is not over: it can be exported from 00:10 (UTC) of the next day on', day);
  end if;
  select array_agg(case when to_regclass(format('jobq.%I', d.name)) is null then p.parent || '_default' else d.name end)
      into days
    from unnest(array['run', 'past_lease', 'attempt']) as p(parent)
    cross join lateral (select p.parent || '_' || to_char(day, 'YYYYMMDD') as name) d;
  set local lock_timeout = '100ms';
  loop
    begin
      foreach name in array days loop
        execute format('lock table only jobq.%I in share mode', name);
      end loop;
      exit;
    exception when lock_not_available then
      tries := tries + 1;
      if tries = 50 then
        raise sqlstate 'JQ003' using message = format('%s is being written to, or vacuumed: try again later', day);
      end if;
      perform pg_sleep(0.2);
    end;
  end loop;
  if exists (select from jobq.lease l where l.id >= low and l.id < high) then
    raise sqlstate 'JQ003'
        using message = format('jobs that were claimed on %s still run: it can be exported when they have ended', day);
  end if;
  began := clock_timestamp();
  update jobq.setting s set export_day = day, export_began_at = began;
  return began;
end $$;

-- export_end records that a whole day was exported, and how much; it returns
-- the id of the audit row. It must be the export that began last, nothing may
-- have come back into the day since, and all days before must have been exported.
create function jobq.export_end(actor text, day date, began_at timestamptz, jobs bigint, attempts bigint) returns bigint
  language plpgsql
  as $$
declare
  old jobq.setting;
  first date;
begin
  select s.* into strict old from jobq.setting s for update;
  if old.export_day is distinct from day or old.export_began_at is distinct from began_at then
    raise sqlstate 'JQ003' using message = format('the export of %s does not count: another has begun since, or an '
      'undo has brought a job back; export it again', day);
  end if;
  first := jobq.export_first();
  if first < day then
    raise sqlstate 'JQ003' using message = format('%s is to be exported before %s', first, day);
  end if;
  update jobq.setting s set exported_before = greatest(s.exported_before, day + 1), export_began_at = null;
  return jobq.audit_begin(actor, 'export', day::text, null, jsonb_build_object('jobs', jobs, 'attempts', attempts));
end $$;

-- export_again notes that a job has come back into a day: an export of the day that is
-- under way does not count, and an earlier one is not complete.
create function jobq.export_again(day date) returns void
  language sql
  as $$
    update jobq.setting s
      set exported_before = least(s.exported_before, greatest(export_again.day, date '2026-01-01')),
        export_began_at = case when s.export_day = export_again.day then null else s.export_began_at end
      where s.exported_before > export_again.day or (s.export_day = export_again.day and s.export_began_at is not null)
  $$;
