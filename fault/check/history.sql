-- Every change of a job and of a lease, as the database saw it, copied by row
-- triggers to a table that nobody but the checker reads. This file and leases.go
-- know the tables of jobq and none of its code. The rows of one job, and of one
-- lease, are in their true order, because whoever changes them holds their lock
-- until the change commits, and an end is never taken back; what was rolled back
-- leaves no row.
create schema fault;

create table fault.history (
  seq        bigint generated always as identity primary key,
  at         timestamptz not null default clock_timestamp(),
  txid       bigint not null default txid_current(),
  session    name not null default session_user, -- a role of its own for every process
  pid        integer not null default pg_backend_pid(),
  stage      text not null, -- the table
  op         text not null,
  id         bigint not null, -- of the job; in lease and past_lease the lease's
  token      bigint,
  slot       smallint,
  owner      text,
  expires    timestamptz, -- before the change
  expires_new timestamptz,
  attempts   integer,
  attempts_new integer,
  max_attempts integer,
  state      text,   -- after the change
  state_before text,
  result     jsonb,
  error      text,
  key        text,   -- of the producers' ledger
  progress_by text,  -- the token of the run that said so, where this changed it
  checkpoint_by text, -- likewise
  lost       boolean not null, -- the lease was taken away, before the change
  jobs       bigint[] not null,   -- of a lease, by slot
  slots      smallint[] not null, -- of a lease, those that have ended
  ms         smallint[] not null  -- beside each when; -1: its own row says how; -2: it has not ended
);

create function fault.record() returns trigger language plpgsql security definer as $$
declare
  before jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  after jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  known jsonb := coalesce(before, after);
  -- Of past_lease by slot, of lease in the order in which they ended.
  ended jsonb := coalesce(after->'ended', after->'ended_ms', '[]');
begin
  -- tg_argv[0] is the table: a partition has another name.
  insert into fault.history
      (stage, op, id, token, slot, owner, expires, expires_new, attempts, attempts_new, max_attempts, state, state_before,
       result, error, key, progress_by, checkpoint_by, lost, jobs, slots, ms)
    values (tg_argv[0], lower(tg_op), coalesce(known->>'id', known->>'job_id')::bigint,
      coalesce(after->>'lease_id', known->>'lease_id', known->>'lease_token', known->>'id')::bigint,
      (known->>'slot')::smallint, known->>'owner',
      (before->>'expires_at')::timestamptz, (after->>'expires_at')::timestamptz,
      (before->>'attempts')::integer, (after->>'attempts')::integer, (known->>'max_attempts')::integer,
      after->>'state', before->>'state', after->'result', after->>'last_error',
      known->'args'->>'key', nullif(after->>'stage', before->>'stage'),
      nullif(after->'checkpoint'->>'token', before->'checkpoint'->>'token'),
      before->>'lost_at' is not null,
      array(select j::bigint from jsonb_array_elements_text(coalesce(after->'job_ids', '[]')) j),
      case when after ? 'ended' then array(select generate_series(1, jsonb_array_length(ended))::smallint)
        else array(select s::smallint from jsonb_array_elements_text(coalesce(after->'ended_slots', '[]')) s) end,
      array(select coalesce(m::smallint, -2) from jsonb_array_elements_text(ended) m));
  return null;
end $$;

create trigger fault_history after insert or update or delete on jobq.pending
  for each row execute function fault.record('pending');
create trigger fault_history after insert or update or delete on jobq.run
  for each row execute function fault.record('run');
create trigger fault_history after insert or update or delete on jobq.lease
  for each row execute function fault.record('lease');
create trigger fault_history after insert on jobq.past_lease
  for each row execute function fault.record('past_lease');
create trigger fault_history after insert or update on jobq.progress
  for each row execute function fault.record('progress');
