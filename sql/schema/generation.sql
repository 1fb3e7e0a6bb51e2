-- A standby that is promoted, or a backup that is restored, lacks the latest of what was. So its sequences would give
-- ids of jobs and numbers of leases a second time. A promoted server has a new timeline, and a restored dump another
-- system or other oids. These sequences have what was seen last. They are no row, so a transaction that is rolled back
-- does not take them back.
create sequence jobq.timeline_seq as bigint;
create sequence jobq.system_seq as bigint minvalue -9223372036854775808 start 0;

-- The row that whoever advances the sequences locks. Nobody but the owner may.
create table jobq.generation_turn (
  singleton boolean not null primary key default true check (singleton)
);
comment on table jobq.generation_turn is
  'The row that a session locks to advance the sequences after a failover or a restore.';
insert into jobq.generation_turn default values;

-- timeline is the server's, from the name of its WAL file: pg_control_checkpoint says the one before, until the
-- checkpoint that follows a promotion. It is null where the server does not tell, such as services with a storage of
-- their own.
create function jobq.timeline() returns bigint
  language plpgsql
  as $$
begin
  return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
exception when others then
  return null;
end $$;

-- generation_check advances the ids of jobs and the numbers of leases by 2^30 if the server has another timeline, or
-- the tables another place, than when it looked last. It says whether it has advanced them. It runs with the first
-- claim after a promotion, and with each heartbeat of workers and janitors.
--
-- The lock keeps two sessions from advancing at once: the later one would take back what others have got in between.
-- The error lets go of it at once, and not at the end of the caller's transaction. What setval has done stays.
create function jobq.generation_check() returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  gap constant bigint := 1 << 30;
  line bigint := coalesce(jobq.timeline(), pg_sequence_last_value('jobq.timeline_seq'), 1);
  system bigint := 'jobq.system_seq'::regclass::oid::bigint;
  last bigint;
  advanced boolean := false;
begin
  begin
    system := system # (select c.system_identifier from pg_control_system() c);
  exception when others then -- the server does not tell
  end;
  if line = pg_sequence_last_value('jobq.timeline_seq') and system = pg_sequence_last_value('jobq.system_seq') then
    return false;
  end if;
  begin
    perform from jobq.generation_turn for update;
    advanced := line <> pg_sequence_last_value('jobq.timeline_seq')
        or system <> pg_sequence_last_value('jobq.system_seq');
    if advanced then
      last := coalesce(pg_sequence_last_value('jobq.job_id_seq'), 0);
      perform setval('jobq.job_id_seq', least(last, 9223372036854775807 - gap) + gap);
      last := coalesce(pg_sequence_last_value('jobq.lease_number_seq'), 0);
      perform setval('jobq.lease_number_seq', case when last + gap < 1::bigint << 40 then last + gap else gap end);
      raise log 'jobq: %', 'the server has a new timeline, or the tables were restored: '
        'ids of jobs and leases go on 2^30 further';
    end if;
    perform setval('jobq.timeline_seq', line), setval('jobq.system_seq', system);
    raise sqlstate 'JQ000';
  exception when sqlstate 'JQ000' then
  end;
  return coalesce(advanced, false); -- null: the migration has asked, and there was nothing before
end $$;
select jobq.generation_check();
