-- The tables that the first layout has and the second has not, as in commit
-- b792e27, sql/migrations/001 and 002. What is there already stays.

-- One row per lease held. No index but the key: a heartbeat is then a HOT
-- update, and the reaper scans the whole table, which is as small as the
-- work in hand. The fillfactor leaves heartbeats room on their page.
create table if not exists jobq.running (
  id                  bigint      not null,
  position            bigint,
  lease_token         bigint      not null,
  lease_expires_at    timestamptz not null,
  started_at          timestamptz not null,
  run_at              timestamptz not null,
  created_at          timestamptz not null,
  progressed_at       timestamptz,
  cancel_requested_at timestamptz,
  timeout             interval,
  backoff_base        interval,
  backoff_max         interval,
  progress_percent    real,
  priority            smallint    not null,
  attempts            smallint    not null,
  max_attempts        smallint    not null,
  crashes             smallint    not null,
  args_apart          boolean     not null,
  queue               text        not null,
  kind                text        not null,
  lease_owner         text        not null,
  args                jsonb,
  unique_key          text,
  last_error          text,
  clear_reason        text,
  checkpoint          jsonb,
  metadata            jsonb,
  tags                text[],
  progress_stage      text,
  progress_message    text,
  constraint running_pkey primary key (id),
  constraint "checkpoint must be at most 1 MiB" check (pg_column_size(checkpoint) <= 1048576),
  constraint "progress_percent must be 0 to 100" check (progress_percent between 0 and 100),
  constraint "progress_stage must be at most 128 characters" check (char_length(progress_stage) <= 128),
  constraint "progress_message must be at most 1024 characters" check (char_length(progress_message) <= 1024)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The history, partitioned by the day on which a job ended.
create table if not exists jobq.finished (
  id           bigint         not null,
  finished_at  timestamptz    not null,
  lease_token  bigint         not null,
  started_at   timestamptz,
  run_at       timestamptz    not null,
  created_at   timestamptz    not null,
  timeout      interval,
  backoff_base interval,
  backoff_max  interval,
  state        jobq.job_state not null,
  priority     smallint       not null,
  attempts     smallint       not null,
  max_attempts smallint       not null,
  crashes      smallint       not null,
  args_apart   boolean        not null,
  queue        text           not null,
  kind         text           not null,
  lease_owner  text,
  args         jsonb,
  unique_key   text,
  last_error   text,
  checkpoint   jsonb,
  metadata     jsonb,
  tags         text[],
  result       jsonb,
  constraint "state must be terminal" check (state in ('completed', 'failed', 'cancelled')),
  constraint "result must be at most 1 MiB" check (pg_column_size(result) <= 1048576)
) partition by range (finished_at);
create table if not exists jobq.finished_default partition of jobq.finished default;
create index if not exists finished_id_idx on jobq.finished (id);
create index if not exists finished_unsuccessful_idx on jobq.finished (finished_at, id) include (queue, state) where state <> 'completed';
create index if not exists finished_default_finished_at_idx on jobq.finished_default (finished_at);

-- A finished job gives up its unique key.
create or replace function jobq.finished_unique_key_drop() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  delete from jobq.unique_key u where u.kind = new.kind and u.key = new.unique_key and u.job_id = new.id;
  return null;
end $$;

create or replace trigger finished_unique_key_drop after insert on jobq.finished
  for each row when (new.unique_key is not null)
  execute function jobq.finished_unique_key_drop();

revoke execute on function jobq.finished_unique_key_drop from public;
