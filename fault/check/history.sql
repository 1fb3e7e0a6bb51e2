-- Every change of a job, as the database saw it, copied by row triggers to a
-- table that nobody but the checker reads. This file knows the tables of jobq
-- and none of its code. The rows of one job are in their true order, because
-- whoever changes a job holds its lock until the change commits; what was
-- rolled back leaves no row.
create schema fault;

create table fault.history (
  seq        bigint generated always as identity primary key,
  at         timestamptz not null default clock_timestamp(),
  txid       bigint not null default txid_current(),
  session    name not null default session_user, -- a role of its own for every process
  pid        integer not null default pg_backend_pid(),
  stage      text not null,
  op         text not null,
  id         bigint not null,
  token      bigint,
  owner      text,
  expires    timestamptz, -- before the change
  expires_new timestamptz,
  attempts   integer,
  attempts_new integer,
  max_attempts integer,
  state      text,
  result     jsonb,
  error      text,
  key        text,   -- of the producers' ledger
  progress_by text,  -- the token of the run that said so, where this changed it
  checkpoint_by text -- likewise
);

create function fault.record() returns trigger language plpgsql security definer as $$
declare
  before jsonb := case when tg_op <> 'INSERT' then to_jsonb(old) end;
  after jsonb := case when tg_op <> 'DELETE' then to_jsonb(new) end;
  known jsonb := coalesce(before, after);
begin
  -- tg_argv[0] is the stage: a partition has another name than its table.
  insert into fault.history
      (stage, op, id, token, owner, expires, expires_new, attempts, attempts_new, max_attempts, state, result, error,
       key, progress_by, checkpoint_by)
    values (tg_argv[0], lower(tg_op), (known->>'id')::bigint, (known->>'lease_token')::bigint, known->>'lease_owner',
      (before->>'lease_expires_at')::timestamptz, (after->>'lease_expires_at')::timestamptz,
      (before->>'attempts')::integer, (after->>'attempts')::integer, (known->>'max_attempts')::integer,
      after->>'state', after->'result', after->>'last_error',
      known->'args'->>'key', nullif(after->>'progress_stage', before->>'progress_stage'),
      nullif(after->'checkpoint'->>'token', before->'checkpoint'->>'token'));
  return null;
end $$;

create trigger fault_history after insert or update or delete on jobq.pending
  for each row execute function fault.record('pending');
create trigger fault_history after insert or update or delete on jobq.running
  for each row execute function fault.record('running');
create trigger fault_history after insert or update or delete on jobq.finished
  for each row execute function fault.record('finished');
