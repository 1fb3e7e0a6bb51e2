-- How jobs come in: one by one, many at once, and by a plain INSERT, from any language.

-- pending_json_require raises for a job whose JSON is too long or nested too deeply. pending_before_insert leaves out
-- args over 1000 bytes, which have their CHECK in payload.
create function jobq.pending_json_require(args jsonb, metadata jsonb, checkpoint jsonb) returns void
  language plpgsql
  as $$
begin
  perform jobq.json_require('args', args, jobq.args_bytes_max()), jobq.json_require('metadata', metadata, 65536),
    jobq.json_require('checkpoint', checkpoint, 1048576);
end $$;

-- Called only for the few rows that need it: see the trigger's WHEN. Of args that are stored in at most 100 bytes, the
-- text cannot be too long, and in at most 800, they cannot be nested too deeply. To make the text costs less than to
-- call this function.
create function jobq.pending_before_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder bigint;
  apart boolean := pg_column_size(new.args) > 1000; -- once: it may be compressed here, and not where it is an argument
begin
  -- what has been claimed was accepted: a limit lowered since must not keep it from coming back
  if new.lease_token = 0 then
    perform jobq.pending_json_require(case when not apart then new.args end, new.metadata, new.checkpoint);
  end if;
  -- a suspect: see pending_suspect_idx
  if new.run_at > clock_timestamp()
      or new.crashes >= least(2, coalesce(new.lost + 1, new.max_attempts - new.attempts)) then
    new.position := null;
  end if;
  new.partition_key := coalesce(new.partition_key, ''); -- as an application writes that has none
  if (new.position is null and new.waits is null or new.partition_key <> '')
      -- to set it costs as much as all the rest
      and current_setting('jobq_pending.marked', true) is distinct from 'on' then
    perform set_config('jobq_pending.marked', 'on', true); -- for pending_after_insert
  end if;
  if new.unique_key is not null then
    holder := jobq.unique_key_take(new.kind, new.unique_key, new.id);
    if holder <> new.id then
      raise unique_violation using
        message = jobq.unique_key_problem(new.kind, new.unique_key, holder),
        hint = 'The function enqueue returns the id of that job instead.',
        constraint = 'unique_key_pkey', table = 'unique_key';
    end if;
  end if;
  if apart then
    insert into jobq.payload (job_id, args) values (new.id, new.args);
    new.args := null;
    new.args_apart := true;
  end if;
  return new;
end $$;
create trigger pending_before_insert before insert on jobq.pending
  for each row when (new.run_at > now() or new.position is null or new.crashes > 0 or new.unique_key is not null
      or new.partition_key is distinct from ''
    or pg_column_size(new.args) > 100 and (pg_column_size(new.args) > 800 or octet_length(new.args::text) > 10000)
    or pg_column_compression(new.args) is not null or new.metadata is not null or new.checkpoint is not null)
  execute function jobq.pending_before_insert();

create function jobq.pending_before_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  perform jobq.pending_json_require(new.args, new.metadata, new.checkpoint); -- args over 1000 bytes are not here
  return new;
end $$;
create trigger pending_before_update before update of args, metadata, checkpoint on jobq.pending
  for each row when (new.args is distinct from old.args or new.metadata is distinct from old.metadata
      or new.checkpoint is distinct from old.checkpoint)
  execute function jobq.pending_before_update();

-- pending_after_insert tells the janitor when the earliest of the new jobs becomes due, if the janitor sleeps until
-- then (sleep_announce), and adds hints for claims of keys. It is called only in transactions in which
-- pending_before_insert has seen such a job. It is one trigger for both, because each insert of a single job pays a few
-- microseconds for every trigger with a WHEN.
create function jobq.pending_after_insert() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  due timestamptz;
begin
  select min(i.run_at) into due from inserted i where i.position is null and i.waits is null;
  if extract(epoch from due) * 1000 < pg_sequence_last_value('jobq.asleep_seq') then
    perform jobq.notify('due', extract(epoch from due)::text);
  end if;
  perform jobq.lane_come(k.queue, k.keys)
    from (
      select i.queue, array_agg(distinct i.partition_key::text) as keys
        from inserted i where i.partition_key <> '' and i.position is not null
        group by i.queue
    ) k;
  return null;
end $$;
create trigger pending_after_insert after insert on jobq.pending
  referencing new table as inserted
  for each statement when (current_setting('jobq_pending.marked', true) = 'on')
  execute function jobq.pending_after_insert();

-- pending_after_update adds the same hints when a job with a key becomes available later, or goes to another queue. For
-- the latter it adds a hint for the key in the old queue, too (lane_hints_add).
create function jobq.pending_after_update() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if new.position is not null then
    perform jobq.lane_come(new.queue, array[new.partition_key::text]);
  end if;
  if old.queue <> new.queue then
    perform jobq.lane_hints_add(old.queue, array[old.partition_key::text], true);
  end if;
  return null;
end $$;
create trigger pending_after_update after update on jobq.pending
  for each row when (new.partition_key <> ''
    and (old.queue <> new.queue or new.position is not null
        and (old.position is null or old.partition_key <> new.partition_key)))
  execute function jobq.pending_after_update();

-- after_require raises an error for a value that cannot be the id of a job to wait for.
create function jobq.after_require(after bigint[]) returns void
  language plpgsql
  as $$
declare
  odd bigint;
begin
  select u.id into odd from unnest(after) as u(id) where u.id is null or u.id < 1 limit 1;
  if found then
    raise sqlstate 'JQ001' using message = format('after must be ids of jobs, not %s', coalesce(odd::text, 'null'));
  end if;
end $$;

-- after_failure_require raises an error for a policy that does not exist.
create function jobq.after_failure_require(policy text) returns void
  language plpgsql
  as $$
begin
  if policy not in ('cancel', 'run', 'wait') then
    raise sqlstate 'JQ001'
        using message = format('after_failure must be cancel, run or wait, not %L', left(policy, 40));
  end if;
end $$;

-- enqueue adds one job and returns its id. With a unique_key that an
-- unfinished job of the kind holds, it adds nothing and returns that job's id:
-- enqueue_many tells the two apart. uniqueness says how long a key is held, that it is
-- made of the args, and what is done when it is held: see unique_rule.
-- Every argument but kind may be left out or null, which means its default: that of the kind (kind_setting), or that of
-- all kinds.
-- With its owner's rights: whoever chooses ids himself could choose one that a
-- running job has, and then neither row could move.
-- The job waits until the jobs of after are over; after_failure says what becomes of it
-- when one of them fails or is cancelled: see docs/dependencies.md.
-- It calls enqueue_arrays in few lines, since the context of an error has all of them: after_jobs says there that the
-- job, the first, waits for all of after.
create function jobq.enqueue(
  kind         text,
  args         jsonb       default null,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     jsonb       default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   jsonb       default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_id bigint;
  holder bigint;
  problem text := jobq.job_problem(kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
    backoff_max, tags, metadata, partition_key, max_lost);
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  if enqueue.after_failure is not null then
    perform jobq.after_failure_require(enqueue.after_failure);
  end if;
  if cardinality(enqueue.after) > 0 or enqueue.uniqueness is not null then
    perform jobq.after_require(enqueue.after);
    return (select e.id from jobq.enqueue_arrays(array[kind], array[args], array[queue], array[priority], array[run_at],
      array[null::interval], array[max_attempts], array[unique_key], array[timeout], array[backoff_base],
      array[backoff_max], array[to_jsonb(tags)], array[metadata], array_fill(1, array[coalesce(cardinality(after), 0)]),
      after, array[after_failure], array[partition_key], array[uniqueness], array[max_lost]) e);
  end if;
  if pg_sequence_last_value('jobq.kind_setting_seq') is not null then -- has any kind settings?
    select coalesce(enqueue.max_attempts, k.max_attempts), coalesce(enqueue.priority, k.priority),
        coalesce(enqueue.backoff_base, k.backoff_base), coalesce(enqueue.backoff_max, k.backoff_max),
        coalesce(enqueue.queue, k.queue), coalesce(enqueue.timeout, k.timeout)
      into max_attempts, priority, backoff_base, backoff_max, queue, timeout
      from (values (enqueue.kind)) as j(kind) left join jobq.kind_setting k on k.name = j.kind;
  end if;
  job_id := nextval('jobq.job_id_seq');
  if enqueue.unique_key is not null then
    holder := jobq.unique_key_take(enqueue.kind, enqueue.unique_key, job_id);
    if holder <> job_id then return holder; end if;
  end if;
  insert into jobq.pending (id, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
      backoff_max, tags, metadata, partition_key, max_lost)
    values (job_id, enqueue.kind, coalesce(enqueue.args, '{}'), coalesce(enqueue.queue, 'default'),
      coalesce(enqueue.priority, 0), coalesce(enqueue.run_at, now()), coalesce(enqueue.max_attempts,
        jobq.max_attempts_default()), enqueue.unique_key, enqueue.timeout, enqueue.backoff_base, enqueue.backoff_max,
      nullif(enqueue.tags, '{}'), enqueue.metadata, coalesce(enqueue.partition_key, ''), enqueue.max_lost);
  return job_id;
end $$;
comment on function jobq.enqueue(text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], jsonb, bigint[], text, text, jsonb, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

-- enqueue for args and metadata that a driver sends as json, and as text. An
-- untyped value, such as a literal, becomes text: PostgreSQL prefers that to any
-- other type. args has no default here, so that a call without it is the one above.
create function jobq.enqueue(
  kind         text,
  args         json,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     json        default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   json        default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args::text), queue, priority, run_at, max_attempts, unique_key,
    timeout, backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata::text), after, after_failure,
        partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness::text) end, max_lost);
end $$;
comment on function jobq.enqueue(text, json, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], json, bigint[], text, text, json, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

create function jobq.enqueue(
  kind         text,
  args         text,
  queue        text        default null,
  priority     bigint      default null,
  run_at       timestamptz default null,
  max_attempts bigint      default null,
  unique_key   text        default null,
  timeout      interval    default null,
  backoff_base interval    default null,
  backoff_max  interval    default null,
  tags         text[]      default null,
  metadata     text        default null,
  after        bigint[]    default null,
  after_failure text       default null,
  partition_key text       default null,
  uniqueness   text        default null,
  max_lost     bigint      default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args), queue, priority, run_at, max_attempts, unique_key, timeout,
    backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata), after, after_failure, partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness) end, max_lost);
end $$;
comment on function jobq.enqueue(text, text, text, bigint, timestamptz, bigint, text, interval, interval, interval,
    text[], text, bigint[], text, text, text, bigint) is
  'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.';

-- jobs_problem says what is wrong with new jobs, given as columns: that they are too many, or what the first one has
-- that has a problem (job_problem).
create function jobq.jobs_problem(
  kinds text[], args jsonb[], queues text[], priorities bigint[], run_ats timestamptz[], delays interval[],
  max_attempts bigint[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[], partition_keys text[], max_losts bigint[]
) returns text
  language plpgsql
  as $$
declare
  problem text;
begin
  if cardinality(kinds) > 100000 then
    return format('jobs must be at most 100000 in one call, not %s', cardinality(kinds));
  end if;
  select format('jobs[%s]: %s', j.i - 1, x.problem) into problem
    from unnest(kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys, timeouts, backoff_bases,
        backoff_maxes, tags, metadata, partition_keys, max_losts)
      with ordinality as j(kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags,
        metadata, partition, max_lost, i)
    cross join lateral (
      -- offset 0, because an argument with a subquery would keep job_problem from being inlined
      select case jsonb_typeof(j.tags) when 'array' then array(select jsonb_array_elements_text(j.tags)) end as tags
        offset 0
    ) t
    cross join lateral (
      select case when jsonb_typeof(j.tags) <> 'array'
          then format('tags must be an array of texts, not %s', jsonb_typeof(j.tags))
        else jobq.job_problem(j.kind, j.args, j.queue, j.priority, coalesce(j.run_at, now() + j.delay), j.attempts,
          j.key, j.timeout, j.base, j.max, t.tags, j.metadata, j.partition, j.max_lost) end as problem
    ) x
    where x.problem is not null
    order by j.i
    limit 1;
  return problem;
end $$;

-- enqueue_arrays adds up to 100,000 jobs in one statement, given as columns: element i of each array belongs to job i,
-- and null means the default. It returns one row for each job, in the same order. The Go client uses it.
--
-- Jobs that wait for others are given by two arrays: after_jobs has the place of such a job, from 1, and after_parents
-- at the same place the id of the job to wait for; a number below 0 is the place of another job of the call
-- (dependencies_add). replaced says that id is the holder of the key, which has got the new args.
create function jobq.enqueue_arrays(
  kinds text[], args jsonb[], queues text[], priorities bigint[], run_ats timestamptz[], delays interval[],
  max_attempts bigint[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[], after_jobs integer[] default null, after_parents bigint[] default null,
  after_failures text[] default null, partition_keys text[] default null, uniques jsonb[] default null,
  max_losts bigint[] default null
) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text := jobq.jobs_problem(kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys,
    timeouts, backoff_bases, backoff_maxes, tags, metadata, partition_keys, max_losts);
  job_ids bigint[];
  rules record;
  holders bigint[]; -- of the unique keys: the job itself, or another one
  untils timestamptz[];
  conflicts text[];
  waits boolean[]; -- for other jobs
  replacing boolean[];
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  if pg_sequence_last_value('jobq.kind_setting_seq') is not null then -- has any kind settings?
    select d.* into queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes
      from jobq.kind_defaults(kinds, queues, priorities, max_attempts, timeouts, backoff_bases, backoff_maxes) d;
  end if;
  select array_agg(nextval('jobq.job_id_seq')) into job_ids from generate_series(1, cardinality(kinds));
  holders := job_ids;
  if uniques is not null then
    rules := jobq.unique_rules(unique_keys, args, uniques, after_jobs);
    unique_keys := rules.keys;
    untils := rules.untils;
    conflicts := rules.conflicts;
  end if;
  if exists (select from unnest(unique_keys) as k(key) where k.key is not null) then
    holders := jobq.unique_keys_take(kinds, unique_keys, job_ids, untils);
    perform jobq.unique_conflicts_refuse(job_ids, holders, kinds, unique_keys, conflicts);
  end if;
  perform jobq.after_failure_require(p.policy) from unnest(after_failures) as p(policy) group by p.policy;
  if cardinality(after_jobs) > 0 then
    waits := jobq.dependencies_add(job_ids, holders, after_jobs, after_parents, after_failures);
  end if;
  insert into jobq.pending (id, position, waits, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout,
      backoff_base, backoff_max, tags, metadata, partition_key, max_lost)
    select j.id, case when j.waits is null then nextval('jobq.position_seq') end, j.waits, j.kind,
        coalesce(j.args, '{}'), coalesce(j.queue, 'default'), coalesce(j.priority, 0),
        coalesce(j.run_at, now() + j.delay, now()), coalesce(j.attempts, jobq.max_attempts_default()), j.key, j.timeout,
        j.base, j.max, case when j.tags is not null then nullif(array(select jsonb_array_elements_text(j.tags)), '{}')
          end, j.metadata, coalesce(j.partition, ''), j.max_lost
      from unnest(job_ids, holders, kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys,
          timeouts, backoff_bases, backoff_maxes, tags, metadata, waits, partition_keys, max_losts)
        as j(id, holder, kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags, metadata,
          waits, partition, max_lost) where j.id = j.holder;
  if uniques is not null then
    replacing := jobq.jobs_replace(job_ids, holders, conflicts, args, priorities, run_ats, delays);
  end if;
  return query select h.holder, h.holder <> h.job_id, coalesce(h.replaced, false)
      from unnest(holders, job_ids, replacing) as h(holder, job_id, replaced);
end $$;
