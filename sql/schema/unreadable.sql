-- Jobs that cannot be read, or have values that cannot be: they are set apart, and stop nobody.

-- job_problem says in words which value of a new job is beyond its limit, and what the limit is; null if none is. The
-- CHECKs of pending refuse such a row whichever way it comes in, but their errors quote the whole INSERT, and do not
-- say which of many jobs is wrong.
create function jobq.job_problem(
  kind text, args jsonb, queue text, priority bigint, run_at timestamptz, max_attempts bigint, unique_key text,
  timeout interval, backoff_base interval, backoff_max interval, tags text[], metadata jsonb,
  partition_key text default null, max_lost bigint default null
) returns text
  language sql stable parallel safe
  return case
    when kind is null then 'kind must be 1 to 128 characters, not null'
    when char_length(kind) not between 1 and 128
        then format('kind must be 1 to 128 characters, not %s', char_length(kind))
    when pg_column_size(args) > jobq.args_bytes_max() then
      format('args must be at most %s bytes as stored, not %s', jobq.args_bytes_max(), pg_column_size(args))
    when char_length(queue) not between 1 and 128
        then format('queue must be 1 to 128 characters, not %s', char_length(queue))
    when priority not between -32768 and 32767 then format('priority must be -32768 to 32767, not %s', priority)
    when run_at < '0001-01-01 00:00:00+00' or run_at >= '10000-01-01 00:00:00+00' then
      format('run_at must be in the years 1 to 9999, not %s', run_at)
    when max_attempts not between 1 and 32767 then format('max_attempts must be 1 to 32767, not %s', max_attempts)
    when max_lost not between 1 and 32767 then format('max_lost must be 1 to 32767, not %s', max_lost)
    when char_length(unique_key) not between 1 and 255 then
      format('unique_key must be 1 to 255 characters, not %s', char_length(unique_key))
    when char_length(partition_key) not between 1 and 255 then
      format('partition_key must be 1 to 255 characters, not %s', char_length(partition_key))
    when timeout <= '0' or timeout > '10 years'
        then format('timeout must be positive, at most 10 years, not %s', timeout)
    when backoff_base <= '0' or backoff_base > '10 years' then
      format('backoff_base must be positive, at most 10 years, not %s', backoff_base)
    when backoff_max <= '0' or backoff_max > '10 years' then
      format('backoff_max must be positive, at most 10 years, not %s', backoff_max)
    when coalesce(timeout, backoff_base, backoff_max) is not null
        and jobq.has_months(array[timeout, backoff_base, backoff_max]) then
      'timeout and backoff must be without months and years'
    when array_ndims(tags) > 1 then 'tags must be one list of texts, not a list of lists'
    when cardinality(tags) > 32 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s', cardinality(tags))
    when array_position(tags, null) is not null
        then 'tags must be at most 32, without nulls, 8 KiB in all, not with a null'
    when pg_column_size(tags) > 8192 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s bytes', pg_column_size(tags))
    when pg_column_size(metadata) > 65536 then
      format('metadata must be at most 64 KiB as stored, not %s bytes', pg_column_size(metadata))
  end;

-- job_unreadable says why no claim can read a job that waits; null if it can. It reads all that a claim returns, and
-- catches whatever that raises. Of JSON that is far too long it makes no text.
create function jobq.job_unreadable(of_job bigint) returns text
  language plpgsql
  as $$
declare
  problem text;
  bytes bigint;
begin
  select coalesce(jobq.json_problem('args', v.args, 67108864), jobq.json_problem('metadata', v.metadata, 67108864),
      jobq.json_problem('checkpoint', v.checkpoint, 67108864))
    into problem
    from (select p.metadata, p.checkpoint, coalesce(p.args, (select a.args from jobq.payload a
        where a.job_id = p.id)) as args
      from jobq.pending p where p.id = of_job) v;
  if problem is null then
    -- In this database's encoding everything has a text, but not always in the worker's, which is UTF8.
    select octet_length(convert_to(concat(p.queue, p.kind, p.partition_key, p.unique_key, p.last_error, p.clear_reason,
          p.tags, p.metadata, p.checkpoint, p.args, (select a.args from jobq.payload a where a.job_id = p.id)), 'UTF8'))
        + ceil(extract(epoch from p.timeout) * 1000)::bigint
      into bytes from jobq.pending p where p.id = of_job;
  end if;
  return problem;
exception when others then
  return sqlerrm;
end $$;

-- job_set_apart fails a job that no claim can read, for good, and returns the reason; null if it has not done so. The
-- job never began, and uses no attempt. What can be moved of its values stays with it. Another session's claim may have
-- locked the job, until the server has given up making its text, even after the claim was cancelled. So it can wait for
-- the lock.
create function jobq.job_set_apart(of_job bigint, waits boolean) returns text
  language plpgsql set lock_timeout = '1min'
  as $$
declare
  job jobq.run;
  problem text;
begin
  begin
    if waits then
      perform from jobq.pending p where p.id = of_job and p.position is not null for update;
    else
      perform from jobq.pending p where p.id = of_job and p.position is not null for update skip locked;
    end if;
  exception when lock_not_available then
    return null;
  end;
  if found then
    problem := jobq.job_unreadable(of_job); -- as it is now: it may have been edited
  end if;
  if problem is null then
    return null;
  end if;
  -- Not with run_of: each of the values that are missing here may be the one that cannot be read.
  insert into jobq.run
      (id, lease_id, slot, state, finished_at, position, run_at, created_at, priority, attempts, max_attempts, crashes,
       args_apart, queue, kind, unique_key, last_error, partition_key)
    select p.id, jobq.lease_id_next(), 0, 'failed', clock_timestamp(), p.position, nullif(p.run_at, p.created_at),
        p.created_at, p.priority, p.attempts, p.max_attempts, p.crashes, true, p.queue, p.kind, p.unique_key,
        left('the job cannot be read: ' || problem, 1000), nullif(p.partition_key, '')
      from jobq.pending p where p.id = of_job
    returning * into job;
  begin
    update jobq.run r
      set args = p.args, args_apart = p.args_apart, metadata = p.metadata, checkpoint = p.checkpoint, tags = p.tags,
          timeout = p.timeout
      from jobq.pending p where p.id = of_job and r.id = of_job and r.lease_id = job.lease_id;
  exception when others then
    null; -- they are damaged, and gone
  end;
  delete from jobq.pending p where p.id = of_job;
  insert into jobq.stat_delta (minute, queue, kind, failed)
    values (date_trunc('minute', clock_timestamp()), job.queue, job.kind, 1);
  perform jobq.lane_freed(job.queue, job.partition_key);
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(array[of_job]);
  end if;
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[of_job]);
  end if;
  return problem;
end $$;

-- unreadable_set_apart looks at up to job_count available jobs of a queue after a place, in the order of
-- pending_claim_idx, and sets those apart that no claim can read. Workers call it after a claim that has failed for
-- what it has read: one such job would make each claim of the queue fail. It returns these jobs, and the place for the
-- next call; a null key when it has come to the end. It waits for the lock of the first of them, while it has locked
-- nothing itself, and leaves out others that are locked.
create function jobq.unreadable_set_apart(
  of_queue text, inout key text, inout priority integer, inout place bigint, job_count integer, out ids bigint[],
      out problems text[]
)
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off
  as $$
#variable_conflict use_variable
declare
  job record;
  problem text;
  looked integer := 0;
  waits boolean := true;
begin
  ids := '{}';
  problems := '{}';
  for job in
    select p.id, p.partition_key, p.priority, p.position from jobq.pending p
      where p.queue = of_queue and p.position is not null
        and (p.partition_key, p.priority, p.position) > (key, priority, place)
      order by p.partition_key, p.priority, p.position limit job_count
  loop
    looked := looked + 1;
    key := job.partition_key;
    priority := job.priority;
    place := job.position;
    continue when jobq.job_unreadable(job.id) is null;
    problem := jobq.job_set_apart(job.id, waits);
    waits := false;
    if problem is not null then
      ids := ids || job.id;
      problems := problems || left(problem, 300);
    end if;
  end loop;
  if looked < job_count then
    key := null;
  end if;
end $$;
