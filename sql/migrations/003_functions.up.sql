-- The SQL interface for any language, and what the worker, the janitor and
-- the operator share. docs/sql.md documents the public part.
set local lock_timeout = '5s';

-- The job as people see it, whatever stage it is in.
create view jobq.job as
  select p.id, case when p.waits then 'waiting' when p.position is null then 'scheduled' else 'available' end::jobq.job_state as state,
      p.queue, p.kind, p.priority, p.attempts, p.max_attempts, p.crashes, p.lease_token, p.run_at, p.created_at,
      null::timestamptz as started_at, null::timestamptz as finished_at, null::text as lease_owner,
      null::timestamptz as lease_expires_at, null::timestamptz as cancel_requested_at,
      null::timestamptz as progressed_at, null::real as progress_percent, null::text as progress_stage,
      null::text as progress_message, p.timeout, p.backoff_base, p.backoff_max, p.unique_key, p.last_error, p.clear_reason, p.tags,
      p.metadata, coalesce(p.args, (select a.args from jobq.payload a where a.job_id = p.id)) as args,
      p.checkpoint, null::jsonb as result, nullif(p.partition_key, '') as partition_key
    from jobq.pending p
  union all
  select r.id, coalesce(r.state, case when e.ended_ms >= 0 then 'completed' else 'running' end::jobq.job_state),
      r.queue, r.kind, r.priority, r.attempts, r.max_attempts, r.crashes, r.lease_id, coalesce(r.run_at, r.created_at), r.created_at,
      coalesce(r.began_at, case when e.runs and r.slot > l.begun then null else l.claimed_at end), coalesce(r.finished_at, l.claimed_at + e.ended_ms * interval '1 ms'), l.owner,
      case when e.runs then l.expires_at end, case when e.runs then r.cancel_requested_at end,
      p.progressed_at, p.percent, p.stage,
      p.message, r.timeout, r.backoff_base, r.backoff_max, r.unique_key, r.last_error, case when e.runs then r.clear_reason end, r.tags,
      r.metadata, coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
      coalesce(p.checkpoint, r.checkpoint), r.result, r.partition_key
    from jobq.run r
    -- The limit keeps the planner from hashing all leases for one job; neighbours
    -- mostly have the same lease, which it remembers.
    left join lateral (
      select x.claimed_at, x.owner, x.expires_at, x.begun, null::smallint[] as ended, x.ended_slots, x.ended_ms
        from jobq.lease x where x.id = r.lease_id
      union all
      select x.claimed_at, x.owner, null, null, x.ended, null, null
        from jobq.past_lease x where x.id = r.lease_id
      limit 1
    ) l on true
    cross join lateral (
      select o.ended_ms, r.state is null and o.ended_ms is null as runs
        from (select coalesce(l.ended[r.slot], l.ended_ms[array_position(l.ended_slots, r.slot)]) as ended_ms) o
    ) e
    left join lateral (
      select x.progressed_at, x.percent, x.stage, x.message, x.checkpoint
        from jobq.progress x where x.job_id = r.id and x.lease_id = r.lease_id and e.runs limit 1
    ) p on true;

-- error_pattern is what errors of the same cause have in common: the first line of an
-- error, with # for what differs from job to job, cut to 60 characters. Failures are
-- grouped by it, and a filter finds the jobs of a group with it (err:=).
--
-- Example: these two become 'user #: dial tcp #: connection refused'.
--
--   user 4711: dial tcp 10.0.0.7:5432: connection refused
--   user 815: dial tcp 10.0.0.9:5432: connection refused
--
-- A # stands for a text in quotes, a mail address, a uuid, an IPv6 address, and for a
-- word with a digit in it, together with such words that follow after . , : or -,
-- which is a number, a time, an id, or another address. An apostrophe within a word
-- (\u0027) opens no quote. What follows code, status, errno, signal, SQLSTATE, HTTP or SMTP
-- says which error it is, and stays: that alternative of the expression has a group,
-- and the # after it is taken away again. Of several alternatives that match at a
-- place, the longest counts.
--
-- Only the first 200 characters are looked at: about 50 microseconds for each error.
create function jobq.error_pattern(error text) returns text
  language sql immutable parallel safe
  return coalesce(left(regexp_replace(regexp_replace(left(split_part(error, chr(10), 1), 200),
    '((?:code|status|errno|signal|sqlstate|http|smtp)[ :=]{1,2}\w*[0-9]\w*)'
    '|"[^"]*"|`[^`]*`|(?<!\w)\u0027[^\u0027]*\u0027(?!\w)'
    '|[\w.+-]+@[\w.-]+'
    '|\m[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\M'
    '|\m[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){2,7}'
    '|\m\w*[0-9]\w*(?:[.,:-]+\w*[0-9]\w*)*', '\1#', 'gi'),
    '((?:code|status|errno|signal|sqlstate|http|smtp)[ :=]{1,2}\w+)#', '\1', 'gi'), 60), '');

-- Charts read this: what is rolled up, and what is not yet.
create view jobq.stats as
  select s.minute, s.queue, s.kind, sum(s.completed)::bigint as completed, sum(s.failed)::bigint as failed,
      sum(s.retried)::bigint as retried, sum(s.lost)::bigint as lost, sum(s.cancelled)::bigint as cancelled,
      sum(s.run_seconds) as run_seconds, sum(s.wait_seconds) as wait_seconds
    from (
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat
      union all
      select minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds from jobq.stat_delta
    ) s
    group by s.minute, s.queue, s.kind;

-- run_end is what is known about the end of a row of run: since when the job was held and by whom, and when it ended (null while
-- it runs). It takes the row's lease_id, slot and finished_at, and always returns one row. An end is never taken back, so callers
-- need no lock. The planner inlines the function, and finds the lease by its key.
create function jobq.run_end(lease_id bigint, slot smallint, finished_at timestamptz)
  returns table (claimed_at timestamptz, owner text, ended_at timestamptz)
  language sql stable parallel safe rows 1
  begin atomic
    select l.claimed_at, l.owner, coalesce(run_end.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms')
      from (select) run
      left join lateral (
        select x.claimed_at, x.owner, x.ended_ms[array_position(x.ended_slots, run_end.slot)] as ended_ms
          from jobq.lease x where x.id = run_end.lease_id
        union all
        select x.claimed_at, x.owner, x.ended[run_end.slot] from jobq.past_lease x where x.id = run_end.lease_id
        limit 1
      ) l on true;
  end;

-- runs_over takes runs, each with its lease, slot and job, and returns by lease the slots of those that have ended on their own
-- row of run, or have left the table. LeaseEnd calls it, with its own snapshot. It is in plpgsql so that its query, which locks
-- every day of the history, is no part of that statement.
create function jobq.runs_over(leases bigint[], slots smallint[], jobs bigint[]) returns table (lease_id bigint, over smallint[])
  language plpgsql stable
  as $$
begin
  -- The look is a scalar subquery, which never becomes a join. Needs run_id_idx only.
  return query
    select x.lease_id, array_agg(distinct x.slot)
      from unnest(leases, slots, jobs) as x(lease_id, slot, job_id)
      where (select r.state is null from jobq.run r where r.id = x.job_id and r.lease_id = x.lease_id limit 1) is not true
      group by x.lease_id;
end $$;

-- job_problem says in words which value of a new job is beyond its limit, and what the limit is; null if none is. The CHECKs of
-- pending refuse such a row whichever way it comes in, but their errors quote the whole INSERT, and do not say which of many jobs
-- is wrong.
create function jobq.job_problem(
  kind text, args jsonb, queue text, priority bigint, run_at timestamptz, max_attempts bigint, unique_key text,
  timeout interval, backoff_base interval, backoff_max interval, tags text[], metadata jsonb, partition_key text default null
) returns text
  language sql stable parallel safe
  return case
    when kind is null then 'kind must be 1 to 128 characters, not null'
    when char_length(kind) not between 1 and 128 then format('kind must be 1 to 128 characters, not %s', char_length(kind))
    when pg_column_size(args) > jobq.args_bytes_max() then
      format('args must be at most %s bytes as stored, not %s', jobq.args_bytes_max(), pg_column_size(args))
    when char_length(queue) not between 1 and 128 then format('queue must be 1 to 128 characters, not %s', char_length(queue))
    when priority not between -32768 and 32767 then format('priority must be -32768 to 32767, not %s', priority)
    when run_at < '0001-01-01 00:00:00+00' or run_at >= '10000-01-01 00:00:00+00' then
      format('run_at must be in the years 1 to 9999, not %s', run_at)
    when max_attempts not between 1 and 32767 then format('max_attempts must be 1 to 32767, not %s', max_attempts)
    when char_length(unique_key) not between 1 and 255 then
      format('unique_key must be 1 to 255 characters, not %s', char_length(unique_key))
    when char_length(partition_key) not between 1 and 255 then
      format('partition_key must be 1 to 255 characters, not %s', char_length(partition_key))
    when timeout <= '0' or timeout > '10 years' then format('timeout must be positive, at most 10 years, not %s', timeout)
    when backoff_base <= '0' or backoff_base > '10 years' then
      format('backoff_base must be positive, at most 10 years, not %s', backoff_base)
    when backoff_max <= '0' or backoff_max > '10 years' then
      format('backoff_max must be positive, at most 10 years, not %s', backoff_max)
    when coalesce(timeout, backoff_base, backoff_max) is not null and jobq.has_months(array[timeout, backoff_base, backoff_max]) then
      'timeout and backoff must be without months and years'
    when array_ndims(tags) > 1 then 'tags must be one list of texts, not a list of lists'
    when cardinality(tags) > 32 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s', cardinality(tags))
    when array_position(tags, null) is not null then 'tags must be at most 32, without nulls, 8 KiB in all, not with a null'
    when pg_column_size(tags) > 8192 then
      format('tags must be at most 32, without nulls, 8 KiB in all, not %s bytes', pg_column_size(tags))
    when pg_column_size(metadata) > 65536 then
      format('metadata must be at most 64 KiB as stored, not %s bytes', pg_column_size(metadata))
  end;

-- json_of reads JSON from a text. If the text is no JSON, or none that PostgreSQL can store, it raises an
-- error that names the argument.
create function jobq.json_of(name text, content text) returns jsonb
  language plpgsql immutable parallel safe
  as $$
declare
  detail text;
begin
  return content::jsonb;
exception when data_exception or program_limit_exceeded then
  get stacked diagnostics detail = pg_exception_detail;
  raise sqlstate 'JQ001' using
    message = left(regexp_replace(format('%s must be JSON that PostgreSQL can store: %s. %s', name, sqlerrm, detail), '\s+', ' ', 'g'), 300);
end $$;

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
    raise sqlstate 'JQ001' using message = format('after_failure must be cancel, run or wait, not %L', left(policy, 40));
  end if;
end $$;

-- enqueue adds one job and returns its id. With a unique_key that an
-- unfinished job of the kind holds, it adds nothing and returns that job's id:
-- enqueue_many tells the two apart. uniqueness says how long a key is held, that it is
-- made of the args, and what is done when it is held: see unique_rule.
-- Every argument but kind may be left out or null, which means its default.
-- With its owner's rights: whoever chooses ids himself could choose one that a
-- running job has, and then neither row could move.
-- The job waits until the jobs of after are over; after_failure says what becomes of it
-- when one of them fails or is cancelled: see docs/dependencies.md.
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
  uniqueness   jsonb       default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_id bigint;
  holder bigint;
  problem text := jobq.job_problem(kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base,
    backoff_max, tags, metadata, partition_key);
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  if enqueue.after_failure is not null then
    perform jobq.after_failure_require(enqueue.after_failure);
  end if;
  if cardinality(enqueue.after) > 0 or enqueue.uniqueness is not null then
    perform jobq.after_require(enqueue.after);
    -- In two lines, since the context of an error has all of it. after_jobs says that the job, the first, waits for all of after.
    return (select e.id from jobq.enqueue_arrays(array[kind], array[args], array[queue], array[priority], array[run_at], array[null::interval], array[max_attempts], array[unique_key], array[timeout],
      array[backoff_base], array[backoff_max], array[to_jsonb(tags)], array[metadata], array_fill(1, array[coalesce(cardinality(after), 0)]), after, array[after_failure], array[partition_key], array[uniqueness]) e);
  end if;
  job_id := nextval('jobq.job_id_seq');
  if enqueue.unique_key is not null then
    holder := jobq.unique_key_take(enqueue.kind, enqueue.unique_key, job_id);
    if holder <> job_id then
      return holder;
    end if;
  end if;
  insert into jobq.pending
      (id, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags, metadata, partition_key)
    values (job_id, enqueue.kind, coalesce(enqueue.args, '{}'), coalesce(enqueue.queue, 'default'),
      coalesce(enqueue.priority, 0), coalesce(enqueue.run_at, now()), coalesce(enqueue.max_attempts, jobq.max_attempts_default()),
      enqueue.unique_key, enqueue.timeout, enqueue.backoff_base, enqueue.backoff_max, nullif(enqueue.tags, '{}'), enqueue.metadata,
      coalesce(enqueue.partition_key, ''));
  return job_id;
end $$;

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
  uniqueness   json        default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args::text), queue, priority, run_at, max_attempts, unique_key, timeout,
    backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata::text), after, after_failure, partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness::text) end);
end $$;

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
  uniqueness   text        default null
) returns bigint
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return jobq.enqueue(kind, jobq.json_of('args', args), queue, priority, run_at, max_attempts, unique_key, timeout,
    backoff_base, backoff_max, tags, jobq.json_of('metadata', metadata), after, after_failure, partition_key,
    case when uniqueness is not null then jobq.json_of('uniqueness', uniqueness) end);
end $$;

-- unique_keys_take takes unique keys for jobs, given as columns, and returns the job that holds each key: the new job, or another
-- one. It takes the keys in a fixed order, as everybody does who takes several: so two callers never wait for each other. Whoever
-- also locks rows of jobs takes the keys first, because a job that ends releases its key when its row is already locked.
create function jobq.unique_keys_take(kinds text[], keys text[], ids bigint[], untils timestamptz[] default null) returns bigint[]
  language plpgsql
  as $$
declare
  holders bigint[] := ids;
  i integer;
begin
  for i in select k.i from unnest(kinds, keys, ids) with ordinality as k(kind, key, id, i)
      where k.key is not null order by k.kind collate "C", k.key collate "C", k.id loop
    holders[i] := jobq.unique_key_take(kinds[i], keys[i], ids[i], untils[i]);
  end loop;
  return holders;
end $$;

-- unique_key_refuse raises an error for a job whose key another job holds.
create function jobq.unique_key_refuse(kind text, key text, holder bigint) returns void
  language plpgsql
  as $$
begin
  raise sqlstate 'JQ004' using message = jobq.unique_key_problem(kind, key, holder);
end $$;

-- unique_keys_release releases keys that were taken for a job which then did not become unfinished. (A job with a key always ends
-- on its own row of run.) It looks up each key and each job by itself: with a join, the planner, which does not know how many keys
-- come, might read all keys and all waiting jobs.
create function jobq.unique_keys_release(kinds text[], keys text[], ids bigint[]) returns void
  language sql
  set enable_seqscan = off set jit = off
  as $$
    select jobq.unique_key_drop(t.kind, t.key, t.id)
      from unnest(kinds, keys, ids) as t(kind, key, id)
      where (select u.job_id from jobq.unique_key u where u.kind = t.kind and u.key = t.key limit 1) = t.id
        and (select true from jobq.pending p where p.id = t.id limit 1) is null
        and (select true from jobq.run r where r.id = t.id and r.state is null limit 1) is null
  $$;

-- json_canonical writes all numbers in a value in one way: jsonb keeps 1.0 and 1 as they were written, and languages differ in
-- which of them they write. The order of members is always the same in jsonb.
create function jobq.json_canonical(value jsonb) returns jsonb
  language plpgsql immutable parallel safe
  as $$
begin
  if strpos(value::text, '.') = 0 then -- no such number in it
    return value;
  end if;
  return case jsonb_typeof(value)
    when 'number' then to_jsonb(trim_scale((value #>> '{}')::numeric))
    when 'array' then (select jsonb_agg(jobq.json_canonical(e.value) order by e.i) from jsonb_array_elements(value) with ordinality as e(value, i))
    when 'object' then (select jsonb_object_agg(m.key, jobq.json_canonical(m.value)) from jsonb_each(value) m)
    else value
  end;
end $$;

-- unique_period reads a time of uniqueness; problem says what is wrong with it.
create function jobq.unique_period(name text, value jsonb, out period interval, out problem text)
  language plpgsql stable
  as $$
begin
  if jsonb_typeof(value) = 'string' then
    period := (value #>> '{}')::interval;
  end if;
  if period is null or period <= '0' or period > '10 years' then
    problem := format('uniqueness: %s must be an interval such as "1 hour", positive, at most 10 years, not %s', name, left(value::text, 40));
  elsif jobq.has_months(array[period]) then
    problem := format('uniqueness: %s must be in days, hours, minutes or seconds, not %s', name, left(value::text, 40));
  elsif name = 'window' and period < '1 s' then
    problem := format('uniqueness: window must be at least a second, not %s', left(value::text, 40));
  end if;
  period := make_interval(secs => extract(epoch from period)); -- a day is 24 hours, also where the session's time zone has 23 that day
exception when data_exception then
  problem := format('uniqueness: %s must be an interval such as "1 hour", not %s', name, left(value::text, 40));
end $$;

-- unique_rule reads the uniqueness of a new job: its key, until when the key is kept after the job's end, and what is done if
-- another job holds it; problem says what is wrong. given is the unique_key of the job.
--
-- Example, at 12:34 UTC, for args {"id": 7, "at": "now"}:
--
--   {"by": ["id"]}                                        {"id": 7}
--   {"by": ["id"], "for": "1 hour"}                       {"id": 7}, kept until 13:34
--   {"by": ["id"], "window": "1 hour"}                    {"id": 7} 2026-05-01T12:00:00Z+3600s, kept until 13:00
--   {"window": "1 day", "on_conflict": "fail"}, given x   x 2026-05-01T00:00:00Z+86400s, kept until 24:00
--
-- Windows are counted from 2001-01-01 UTC, a Monday, so that windows of a week begin on Mondays. A key of more than 255 characters
-- ends in the hash of the whole key.
create function jobq.unique_rule(
  uniqueness jsonb, given text, args jsonb, moment timestamptz, out problem text, out key text, out until timestamptz, out on_conflict text
)
  language plpgsql stable
  as $$
declare
  names constant text[] := '{by, window, for, on_conflict}';
  odd text;
  fields text[];
  chosen jsonb;
  period record;
  began timestamptz;
begin
  if jsonb_typeof(uniqueness) <> 'object' then
    problem := format('uniqueness must be a JSON object such as {"by": ["id"]}, not %s', jsonb_typeof(uniqueness));
    return;
  end if;
  uniqueness := jsonb_strip_nulls(uniqueness);
  select m.name into odd from jsonb_object_keys(uniqueness) as m(name) where m.name <> all(names) limit 1;
  if found then
    problem := format('uniqueness: unknown member %s; there are %s', to_json(left(odd, 128)), array_to_string(names, ', '));
    return;
  end if;
  on_conflict := coalesce(uniqueness ->> 'on_conflict', 'skip');
  if on_conflict not in ('skip', 'replace', 'fail') then
    problem := format('uniqueness: on_conflict must be skip, replace or fail, not %s', to_json(left(on_conflict, 40)));
    return;
  end if;
  if uniqueness ? 'by' then
    if jsonb_typeof(uniqueness -> 'by') = 'array' then
      fields := array(select case jsonb_typeof(e.value) when 'string' then e.value #>> '{}' end from jsonb_array_elements(uniqueness -> 'by') e);
    end if;
    if fields is null or cardinality(fields) not between 1 and 32 or array_position(fields, null) is not null or '*' = any(fields) and cardinality(fields) > 1 then
      problem := 'uniqueness: by must be 1 to 32 names of fields of args, such as ["id"], or ["*"] for all of args';
      return;
    end if;
    if given is not null then
      problem := 'uniqueness: give unique_key or by, and not both';
      return;
    end if;
    if args ? '$jobq' then
      problem := 'uniqueness: by cannot look into encrypted args: give a unique_key';
      return;
    end if;
    if fields = '{*}' then
      chosen := coalesce(args, '{}');
    elsif jsonb_typeof(args) = 'object' then
      select jsonb_object_agg(f.name, args -> f.name) into chosen from unnest(fields) as f(name) where args ? f.name;
    end if;
    if chosen is null then
      problem := format('uniqueness: args have none of the fields %s', left(uniqueness ->> 'by', 128));
      return;
    end if;
    key := jobq.json_canonical(chosen)::text;
  elsif given is not null then
    key := given;
  else
    problem := 'uniqueness needs unique_key, or by';
    return;
  end if;
  if uniqueness ? 'window' and uniqueness ? 'for' then
    problem := 'uniqueness: give window or for, and not both';
  elsif uniqueness ? 'window' then
    period := jobq.unique_period('window', uniqueness -> 'window');
    problem := period.problem;
    if problem is null then
      began := date_bin(period.period, moment, '2001-01-01 00:00:00+00');
      key := format('%s %s+%ss', key, to_char(began at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), trim_scale(extract(epoch from period.period)));
      until := began + period.period;
    end if;
  elsif uniqueness ? 'for' then
    period := jobq.unique_period('for', uniqueness -> 'for');
    problem := period.problem;
    until := moment + period.period;
  end if;
  if char_length(key) > 255 then
    key := left(key, 180) || '#' || encode(sha256(convert_to(key, 'UTF8')), 'hex');
  end if;
end $$;

-- unique_rules reads the uniqueness of jobs, given as columns, and raises an error for the first that is wrong. A job without
-- uniqueness has the key that it was given.
create function jobq.unique_rules(
  given text[], args jsonb[], uniques jsonb[], out keys text[], out untils timestamptz[], out conflicts text[]
)
  language plpgsql
  as $$
declare
  moment timestamptz := clock_timestamp();
  problem text;
begin
  select array_agg(coalesce(r.key, j.given) order by j.i), array_agg(r.until order by j.i), array_agg(r.on_conflict order by j.i),
      (array_agg(format('jobs[%s]: %s', j.i - 1, r.problem) order by j.i) filter (where r.problem is not null))[1]
    into keys, untils, conflicts, problem
    from unnest(given, unique_rules.args, uniques) with ordinality as j(given, args, uniqueness, i)
    left join lateral jobq.unique_rule(j.uniqueness, j.given, j.args, moment) r on jsonb_typeof(j.uniqueness) <> 'null';
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/unique.md has examples.';
  end if;
end $$;

-- unique_conflicts_refuse raises an error for the first new job that has on_conflict "fail" and whose key another job holds.
create function jobq.unique_conflicts_refuse(job_ids bigint[], holders bigint[], kinds text[], keys text[], conflicts text[]) returns void
  language plpgsql
  as $$
declare
  held record;
begin
  select c.i, c.kind, c.key, c.holder, array_position(job_ids, c.holder) as place into held
    from unnest(job_ids, holders, kinds, keys, conflicts) with ordinality as c(id, holder, kind, key, on_conflict, i)
    where c.on_conflict = 'fail' and c.holder <> c.id
    order by c.i limit 1;
  if found then
    raise sqlstate 'JQ004' using message = format('jobs[%s]: %s', held.i - 1, case
      when held.place is null then jobq.unique_key_problem(held.kind, held.key, held.holder)
      else format('unique_key %L of kind %L is that of jobs[%s]', held.key, held.kind, held.place - 1) end);
  end if;
end $$;

-- jobs_replace handles new jobs with on_conflict "replace" whose keys other jobs hold: each holder gets the args, priority and
-- run_at of the new job, the last one if there are several. It returns for which of the new jobs it has done so. A holder that has
-- begun stays as it is: it runs, has stored a step or a checkpoint, or has ended. A claim of the holder at this moment comes
-- either before, and then it has begun, or after, and then it has the new args: see job_edit.
create function jobq.jobs_replace(
  job_ids bigint[], holders bigint[], conflicts text[], args jsonb[], priorities bigint[], run_ats timestamptz[], delays interval[]
) returns boolean[]
  language plpgsql set enable_seqscan = off set jit = off
  as $$
declare
  replaced boolean[] := array_fill(false, array[cardinality(job_ids)]);
  i integer;
  has_begun boolean;
begin
  for i in select c.i from unnest(job_ids, holders, conflicts) with ordinality as c(id, holder, on_conflict, i)
      where c.on_conflict = 'replace' and c.holder <> c.id order by c.holder, c.i loop
    select p.checkpoint is not null into has_begun from jobq.pending p where p.id = holders[i] for update;
    continue when has_begun is distinct from false or exists (select from jobq.step s where s.job_id = holders[i]);
    perform jobq.job_edit(holders[i], jsonb_build_object('args', coalesce(args[i], '{}'), 'priority', coalesce(priorities[i], 0),
      'run_at', coalesce(run_ats[i], now() + delays[i], now())), '{}');
    replaced[i] := true;
  end loop;
  return replaced;
end $$;

-- enqueue_arrays adds up to 100,000 jobs in one statement, given as columns: element i of each array belongs to job i, and null
-- means the default. It returns one row for each job, in the same order. The Go client uses it.
--
-- Jobs that wait for others are given by two arrays: after_jobs has the place of such a job, from 1, and after_parents at the same
-- place the id of the job to wait for; a number below 0 is the place of another job of the call (dependencies_add). replaced says
-- that id is the holder of the key, which has got the new args.
create function jobq.enqueue_arrays(
  kinds text[], args jsonb[], queues text[], priorities bigint[], run_ats timestamptz[], delays interval[],
  max_attempts bigint[], unique_keys text[], timeouts interval[], backoff_bases interval[], backoff_maxes interval[],
  tags jsonb[], metadata jsonb[],
  after_jobs integer[] default null, after_parents bigint[] default null, after_failures text[] default null,
  partition_keys text[] default null, uniques jsonb[] default null
) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  job_ids bigint[];
  waits boolean[]; -- for other jobs
  holders bigint[];
  unique_for record; -- of jobs with uniqueness
  place integer; -- of a job
  replacing boolean[];
  problem text;
begin
  if cardinality(kinds) > 100000 then
    raise sqlstate 'JQ001' using message = format('jobs must be at most 100000 in one call, not %s', cardinality(kinds));
  end if;
  select format('jobs[%s]: %s', j.i - 1, j.problem) into problem
    from (
      select j.i, case -- an argument with a subquery would keep the function from being inlined
          when j.tags is null then
            jobq.job_problem(j.kind, j.args, j.queue, j.priority, coalesce(j.run_at, now() + j.delay), j.attempts, j.key, j.timeout,
              j.base, j.max, null, j.metadata, j.partition)
          when jsonb_typeof(j.tags) <> 'array' then format('tags must be an array of texts, not %s', jsonb_typeof(j.tags))
          else jobq.job_problem(j.kind, j.args, j.queue, j.priority, coalesce(j.run_at, now() + j.delay), j.attempts, j.key, j.timeout,
            j.base, j.max, array(select jsonb_array_elements_text(j.tags)), j.metadata, j.partition)
        end as problem
        from unnest(kinds, enqueue_arrays.args, queues, priorities, run_ats, delays, enqueue_arrays.max_attempts, unique_keys,
            timeouts, backoff_bases, backoff_maxes, enqueue_arrays.tags, enqueue_arrays.metadata, partition_keys)
          with ordinality as j(kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags, metadata, partition, i)
    ) j
    where j.problem is not null
    order by j.i
    limit 1;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/sql.md lists the limits of all arguments.';
  end if;
  select array_agg(nextval('jobq.job_id_seq')) into job_ids from generate_series(1, cardinality(kinds));
  holders := job_ids;
  if uniques is not null then
    unique_for := jobq.unique_rules(unique_keys, enqueue_arrays.args, uniques);
    unique_keys := unique_for.keys;
    select min(a.job) into place from unnest(after_jobs) as a(job) where unique_for.conflicts[a.job] = 'replace';
    if place is not null then -- the holder would have the new args, and run before the jobs that the new one waits for
      raise sqlstate 'JQ001' using message = format('jobs[%s]: uniqueness: on_conflict replace is not for a job that waits for others (after)', place - 1);
    end if;
    holders := jobq.unique_keys_take(kinds, unique_keys, job_ids, unique_for.untils);
    perform jobq.unique_conflicts_refuse(job_ids, holders, kinds, unique_keys, unique_for.conflicts);
  elsif exists (select from unnest(unique_keys) as k(key) where k.key is not null) then
    holders := jobq.unique_keys_take(kinds, unique_keys, job_ids);
  end if;
  if after_failures is not null then
    perform jobq.after_failure_require(p.policy) from (select distinct u.policy from unnest(after_failures) as u(policy)) p;
  end if;
  if cardinality(after_jobs) > 0 then
    waits := jobq.dependencies_add(job_ids, holders, after_jobs, after_parents, after_failures);
  end if;
  insert into jobq.pending
      (id, position, waits, kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags, metadata, partition_key)
    select j.id, case when j.waits is null then nextval('jobq.position_seq') end, j.waits, j.kind, coalesce(j.args, '{}'), coalesce(j.queue, 'default'), coalesce(j.priority, 0),
        coalesce(j.run_at, now() + j.delay, now()), coalesce(j.attempts, jobq.max_attempts_default()), j.key, j.timeout, j.base, j.max,
        case when j.tags is not null then nullif(array(select jsonb_array_elements_text(j.tags)), '{}') end, j.metadata, coalesce(j.partition, '')
      from unnest(job_ids, holders, kinds, args, queues, priorities, run_ats, delays, max_attempts, unique_keys, timeouts,
          backoff_bases, backoff_maxes, tags, metadata, waits, partition_keys)
        as j(id, holder, kind, args, queue, priority, run_at, delay, attempts, key, timeout, base, max, tags, metadata, waits, partition)
      where j.id = j.holder;
  if uniques is not null then
    replacing := jobq.jobs_replace(job_ids, holders, unique_for.conflicts, enqueue_arrays.args, priorities, run_ats, delays);
  end if;
  return query select h.holder, h.holder <> h.job_id, coalesce(h.replaced, false) from unnest(holders, job_ids, replacing) as h(holder, job_id, replaced);
end $$;

-- object_problem checks a JSON object whose members are to be arguments of enqueue. It returns what is wrong, or null: a member
-- that is not among names, which would otherwise be ignored, a member of another type, or one beyond its limit. It tries one
-- member after the other, which is slow: enqueue_many calls it only if a job looks wrong. A new job needs a kind; with
-- is_change the object changes a job, and needs none.
create function jobq.object_problem(object jsonb, names text[], is_change boolean default false) returns text
  language plpgsql stable
  as $$
declare
  name text;
  value jsonb;
begin
  if jsonb_typeof(object) is distinct from 'object' then
    return format('must be a JSON object such as {"kind": "resize", "args": {}}, not %s', coalesce(jsonb_typeof(object), 'null'));
  end if;
  for name, value in select m.key, m.value from jsonb_each(object) m order by m.key loop
    if name <> all(names) then
      return format('unknown member %s; there are %s', to_json(left(name, 128)), array_to_string(names, ', '));
    end if;
    continue when value = 'null'; -- as if it were left out
    if name in ('kind', 'queue', 'unique_key', 'partition_key', 'name', 'after_failure') and jsonb_typeof(value) not in ('string', 'number') then
      return format('%s must be text, not %s', name, jsonb_typeof(value));
    end if;
    if name = 'tags' and jsonb_typeof(value) <> 'array' then
      return format('tags must be an array of texts, not %s', jsonb_typeof(value));
    end if;
    begin
      perform r from jsonb_to_record(jsonb_build_object(name, value)) as r(priority bigint, run_at timestamptz,
        max_attempts bigint, timeout interval, backoff_base interval, backoff_max interval);
    exception when data_exception then
      return left(format('%s must be %s: %s', name,
        case name when 'priority' then 'a whole number, -32768 to 32767' when 'max_attempts' then 'a whole number, 1 to 32767'
          when 'run_at' then 'a time in the years 1 to 9999' else 'an interval, positive, at most 10 years' end, sqlerrm), 300);
    end;
  end loop;
  return (
    select jobq.job_problem(case when is_change then coalesce(r.kind, 'k') else r.kind end, r.args, r.queue, r.priority, r.run_at,
        r.max_attempts, r.unique_key, r.timeout, r.backoff_base, r.backoff_max,
        case when r.tags is not null then array(select jsonb_array_elements_text(r.tags)) end, r.metadata, r.partition_key)
      from jsonb_to_record(object) as r(kind text, args jsonb, queue text, priority bigint, run_at timestamptz,
        max_attempts bigint, unique_key text, timeout interval, backoff_base interval, backoff_max interval, tags jsonb, metadata jsonb,
        partition_key text));
end $$;

-- dependencies_named reads for which jobs the jobs of an enqueue_many wait, from their names and their after arrays, which hold
-- ids and names. It returns what enqueue_arrays takes as after_jobs and after_parents.
create function jobq.dependencies_named(names text[], afters jsonb[]) returns table (children integer[], parents bigint[])
  language plpgsql
  as $$
declare
  problem text;
begin
  with named as materialized (
    select n.name, min(n.place) as place, count(*) as jobs from unnest(names) with ordinality as n(name, place) where n.name is not null group by n.name
  ), edge as materialized (
    select a.place, p.value, p.i,
        case when p.value is null then null
          when jsonb_typeof(p.value) = 'number' and p.value #>> '{}' ~ '^[1-9][0-9]{0,17}$' then (p.value #>> '{}')::bigint
          when jsonb_typeof(p.value) = 'string' then -n.place end as parent
      from unnest(afters) with ordinality as a(after, place)
      left join lateral jsonb_array_elements(case when jsonb_typeof(a.after) = 'array' then a.after end) with ordinality as p(value, i) on true
      left join named n on jsonb_typeof(p.value) = 'string' and n.name = p.value #>> '{}'
      where a.after is not null
  )
  select (
      select format('jobs[%s]: %s', x.place - 1, x.problem)
        from (
          select n.place, format('name %s is that of several jobs', to_json(left(n.name, 128))) as problem from named n where n.jobs > 1
          union all
          select e.place, case when e.value is null then 'after must be an array of ids and names of jobs'
              when jsonb_typeof(e.value) = 'string' then format('after: no job of the list has the name %s', left(e.value::text, 128))
              else format('after must be ids and names of jobs, not %s', left(e.value::text, 128)) end
            from edge e
            where e.parent is null and (e.value is not null or jsonb_typeof(afters[e.place]) not in ('array', 'null'))
        ) x
        order by x.place
        limit 1),
      (select array_agg(e.place::integer order by e.place, e.i) from edge e where e.parent is not null),
      (select array_agg(e.parent order by e.place, e.i) from edge e where e.parent is not null)
    into problem, children, parents;
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'docs/dependencies.md has examples.';
  end if;
  return next;
end $$;

-- enqueue_many adds the jobs of a JSON array of objects, whose members are
-- the arguments of enqueue: [{"kind": "resize", "args": {"id": 1}}, …]. Other jobs of the
-- array may wait for one by its name: [{"kind": "a", "name": "first"}, {"kind": "b", "after": ["first", 12]}].
create function jobq.enqueue_many(jobs jsonb) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  plain constant text[] := '{kind, args, queue, priority, run_at, max_attempts, unique_key, timeout, backoff_base, backoff_max, tags, metadata,
    partition_key}';
  names constant text[] := plain || '{name, after, after_failure, uniqueness}';
  special boolean := false; -- jobs have names, wait for others, or have uniqueness
  c record;
  d record; -- of these
  e record;
  odd boolean := false;
  problem text;
begin
  if jsonb_typeof(jobs) is distinct from 'array' then
    raise sqlstate 'JQ001' using message = format(
      'jobs must be a JSON array of objects such as {"kind": "resize", "args": {}}, not %s', coalesce(jsonb_typeof(jobs), 'null'));
  end if;
  if jsonb_array_length(jobs) > 100000 then
    raise sqlstate 'JQ001' using message = format('jobs must be at most 100000 in one call, not %s', jsonb_array_length(jobs));
  end if;
  begin
    odd := exists (
      select from jsonb_array_elements(jobs) as x(job) cross join lateral jsonb_each(x.job) m
        where m.key <> all(plain)
          or (m.key in ('kind', 'queue', 'unique_key', 'partition_key') and jsonb_typeof(m.value) not in ('string', 'number', 'null')));
    if odd then -- few lists have such jobs: the others are not to pay for them
      special := true;
      odd := exists (
        select from jsonb_array_elements(jobs) as x(job) cross join lateral jsonb_each(x.job) m
          where m.key <> all(names)
            or (m.key in ('kind', 'queue', 'unique_key', 'partition_key', 'name', 'after_failure') and jsonb_typeof(m.value) not in ('string', 'number', 'null')));
    end if;
    select array_agg(r.kind order by x.i) as kinds, array_agg(r.args order by x.i) as args, array_agg(r.queue order by x.i) as queues,
        array_agg(r.priority order by x.i) as priorities, array_agg(r.run_at order by x.i) as run_ats,
        array_agg(null::interval) as delays, array_agg(r.max_attempts order by x.i) as attempts,
        array_agg(r.unique_key order by x.i) as keys, array_agg(r.timeout order by x.i) as timeouts,
        array_agg(r.backoff_base order by x.i) as bases, array_agg(r.backoff_max order by x.i) as maxes,
        array_agg(r.tags order by x.i) as tags, array_agg(r.metadata order by x.i) as metadata,
        array_agg(r.partition_key order by x.i) as partition_keys
      into c
      from jsonb_array_elements(jobs) with ordinality as x(job, i),
        jsonb_to_record(x.job) as r(kind text, args jsonb, queue text, priority bigint, run_at timestamptz,
          max_attempts bigint, unique_key text, timeout interval, backoff_base interval, backoff_max interval,
          tags jsonb, metadata jsonb, partition_key text);
  exception when data_exception then
    odd := true;
  end;
  if odd then -- now find the job and the member
    for i in 0..jsonb_array_length(jobs) - 1 loop
      problem := jobq.object_problem(jobs -> i, names);
      if problem is not null then
        raise sqlstate 'JQ001' using message = format('jobs[%s]: %s', i, problem), hint = 'docs/sql.md lists the limits of all members.';
      end if;
    end loop;
  end if;
  if c.kinds is null then -- no jobs
    return;
  end if;
  select null::text[] as policies, null::integer[] as children, null::bigint[] as parents, null::jsonb[] as uniques into e;
  if special then
    select array_agg(r.name order by x.i) as names, array_agg(r.after order by x.i) as afters, array_agg(r.after_failure order by x.i) as policies,
        case when count(nullif(r.uniqueness, 'null')) > 0 then array_agg(r.uniqueness order by x.i) end as uniques
      into d
      from jsonb_array_elements(jobs) with ordinality as x(job, i),
        jsonb_to_record(x.job) as r(name text, after jsonb, after_failure text, uniqueness jsonb);
    if exists (select from unnest(d.names, d.afters) as u(name, after) where u.name is not null or u.after is not null) then
      select d.policies, n.children, n.parents, d.uniques into e from jobq.dependencies_named(d.names, d.afters) n;
    else
      e.policies := d.policies;
      e.uniques := d.uniques;
    end if;
  end if;
  return query select * from jobq.enqueue_arrays(c.kinds, c.args, c.queues, c.priorities, c.run_ats, c.delays, c.attempts,
    c.keys, c.timeouts, c.bases, c.maxes, c.tags, c.metadata, e.children, e.parents, e.policies, c.partition_keys, e.uniques);
end $$;

-- enqueue_many for jobs that a driver sends as json, and as text or untyped.
create function jobq.enqueue_many(jobs json) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs::text));
end $$;

create function jobq.enqueue_many(jobs text) returns table (id bigint, duplicate boolean, replaced boolean)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  return query select * from jobq.enqueue_many(jobq.json_of('jobs', jobs));
end $$;

-- job_exists says whether a job exists, in whatever table. It looks in all of them with one statement: with several, a job that
-- moves fast between pending and run could be missed by each.
create function jobq.job_exists(job_id bigint) returns boolean
  language sql stable
  return exists (select from jobq.pending p where p.id = job_id) or exists (select from jobq.run r where r.id = job_id);

-- moving_refuse raises an error for a job that has moved to another table each time that it was looked for. Clients try again
-- after this error.
create function jobq.moving_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  raise serialization_failure using message = format('job %s moves too fast: try again', job_id);
end $$;

-- json_shown is what is shown of a JSON value: the value itself, unless it is too long or too deep to be read. Then it is
-- {"jobq:unreadable": "the value must be …"}, so that one such value does not keep the rest of its job, or of a list, from being
-- shown. What is stored in 400 bytes, and not compressed, needs no look: at most 5 MB as text, and 50 levels deep.
create function jobq.json_shown(value jsonb) returns jsonb
  language plpgsql stable strict security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  problem text;
begin
  if pg_column_size(value) <= 400 and pg_column_compression(value) is null then
    return value;
  end if;
  problem := jobq.json_problem('the value', value, 67108864);
  return case when problem is null then value else jsonb_build_object('jobq:unreadable', problem) end;
exception when others then
  return jsonb_build_object('jobq:unreadable', sqlerrm);
end $$;

-- job_unreadable says why no claim can read a job that waits; null if it can. It reads all that a claim returns, and catches
-- whatever that raises. Of JSON that is far too long it makes no text.
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
    from (select p.metadata, p.checkpoint, coalesce(p.args, (select a.args from jobq.payload a where a.job_id = p.id)) as args
      from jobq.pending p where p.id = of_job) v;
  if problem is null then
    -- In this database's encoding everything has a text, but not always in the worker's, which is UTF8.
    select octet_length(convert_to(concat(p.queue, p.kind, p.partition_key, p.unique_key, p.last_error, p.clear_reason, p.tags, p.metadata,
          p.checkpoint, p.args, (select a.args from jobq.payload a where a.job_id = p.id)), 'UTF8'))
        + ceil(extract(epoch from p.timeout) * 1000)::bigint
      into bytes from jobq.pending p where p.id = of_job;
  end if;
  return problem;
exception when others then
  return sqlerrm;
end $$;

-- job_set_apart fails a job that no claim can read, for good, and returns the reason; null if it has not done so. The job never
-- began, and uses no attempt. What can be moved of its values stays with it. Another session's claim may have locked the job, until
-- the server has given up making its text, even after the claim was cancelled. So it can wait for the lock.
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
  insert into jobq.run
      (id, lease_id, slot, state, finished_at, position, run_at, created_at, priority, attempts, max_attempts, crashes, args_apart, queue,
       kind, unique_key, last_error, partition_key)
    select p.id, jobq.lease_id_next(), 0, 'failed', clock_timestamp(), p.position, nullif(p.run_at, p.created_at), p.created_at, p.priority,
        p.attempts, p.max_attempts, p.crashes, true, p.queue, p.kind, p.unique_key, left('the job cannot be read: ' || problem, 1000),
        nullif(p.partition_key, '')
      from jobq.pending p where p.id = of_job
    returning * into job;
  begin
    update jobq.run r
      set args = p.args, args_apart = p.args_apart, metadata = p.metadata, checkpoint = p.checkpoint, tags = p.tags, timeout = p.timeout
      from jobq.pending p where p.id = of_job and r.id = of_job and r.lease_id = job.lease_id;
  exception when others then
    null; -- they are damaged, and gone
  end;
  delete from jobq.pending p where p.id = of_job;
  insert into jobq.stat_delta (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
    values (date_trunc('minute', clock_timestamp()), job.queue, job.kind, 0, 1, 0, 0, 0, 0, 0);
  perform jobq.lane_freed(job.queue, job.partition_key);
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(array[of_job]);
  end if;
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[of_job]);
  end if;
  return problem;
end $$;

-- unreadable_set_apart looks at up to job_count available jobs of a queue after a place, in the order of pending_claim_idx, and sets
-- those apart that no claim can read. Workers call it after a claim that has failed for what it has read: one such job would make
-- each claim of the queue fail. It returns these jobs, and the place for the next call; a null key when it has come to the end.
-- It waits for the lock of the first of them, while it has locked nothing itself, and leaves out others that are locked.
create function jobq.unreadable_set_apart(
  of_queue text, inout key text, inout priority integer, inout place bigint, job_count integer, out ids bigint[], out problems text[]
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
      where p.queue = of_queue and p.position is not null and (p.partition_key, p.priority, p.position) > (key, priority, place)
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

-- cancel ends a waiting job, and asks the worker of a running one to stop. It returns the job's state afterwards: cancelled, or
-- running until the worker has stopped it, or the state in which the job had already ended; null if there is no such job. A job
-- that is cancelled while it waits gets a lease_id of today, for which there is no lease.
create function jobq.cancel(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  ended jobq.job_state;
  was_queue text;
  was_key text;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  -- A job may change tables between two of these statements, each of which
  -- sees what was committed before it: mostly the second round finds it.
  for round in 1..100 loop
    with taken as (
      delete from jobq.pending p where p.id = cancel.job_id
        returning p.id, p.position, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max, p.priority,
          p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key, p.last_error,
          p.clear_reason, p.checkpoint, p.metadata, p.tags, p.partition_key
    ), counted as (
      insert into jobq.stat_delta
          (minute, queue, kind, completed, failed, retried, lost, cancelled, run_seconds, wait_seconds)
        select date_trunc('minute', clock_timestamp()), t.queue, t.kind, 0, 0, 0, 0, 1, 0, 0 from taken t
    )
    insert into jobq.run as r
        (id, lease_id, slot, state, finished_at, position, run_at, created_at, timeout, backoff_base, backoff_max, priority,
         attempts, max_attempts, crashes, args_apart, queue, kind, args, unique_key, last_error,
         clear_reason, checkpoint, metadata, tags, partition_key)
      select t.id, jobq.lease_id_next(), 0, 'cancelled', clock_timestamp(), t.position, nullif(t.run_at, t.created_at), t.created_at, t.timeout,
          t.backoff_base, t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args,
          t.unique_key, t.last_error, t.clear_reason, t.checkpoint, t.metadata, t.tags, nullif(t.partition_key, '')
        from taken t
      returning r.queue, r.partition_key into was_queue, was_key;
    if found then
      perform jobq.lane_freed(was_queue, was_key);
      if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
        perform jobq.waiters_wake(array[cancel.job_id]);
      end if;
      if pg_sequence_last_value('jobq.dependency_seq') is not null then
        perform jobq.parents_ended(array[cancel.job_id]);
      end if;
      return 'cancelled';
    end if;
    -- Its lease is left alone: the owner may write that meanwhile.
    update jobq.run r
      set cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())
      where r.id = cancel.job_id and (select e.ended_at is null from jobq.run_end(r.lease_id, r.slot, r.finished_at) e);
    if found then
      perform jobq.notify('cancel', cancel.job_id::text);
      return 'running';
    end if;
    select coalesce(r.state, 'completed') into ended
      from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = cancel.job_id and e.ended_at is not null;
    if found then
      return ended;
    end if;
    if not jobq.job_exists(cancel.job_id) then
      return null;
    end if;
  end loop;
  perform jobq.moving_refuse(cancel.job_id);
end $$;

-- args_require raises an error if the large args of a job that is to run again are gone: retention removes them before the day of
-- the job. It must be a statement of its own, after the job was taken, to see what was removed in the meantime.
create function jobq.args_require(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.pending p
      where p.id = args_require.job_id and p.args_apart
        and not exists (select from jobq.payload a where a.job_id = args_require.job_id) -- and not p.id: that could become a join
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s: its args have been removed by retention (they were over 1000 bytes): enqueue it anew', args_require.job_id);
  end if;
end $$;

-- running_refuse raises an error if a job runs, for actions that are not possible on a running job.
create function jobq.running_refuse(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.run r
      cross join lateral jobq.run_end(r.lease_id, r.slot, r.finished_at) e
      where r.id = running_refuse.job_id and e.ended_at is null
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s is running', running_refuse.job_id),
      hint = 'Cancel it first, or let it end.';
  end if;
end $$;

-- requeue makes a finished, scheduled or waiting job available now, with at least one attempt left. It returns the job's state
-- afterwards, or null if there is no such job. It raises an error if the job runs, if its args are gone, or if another unfinished
-- job holds its unique key.
create function jobq.requeue(job_id bigint) returns jobq.job_state
  language plpgsql
  as $$
declare
  kinds text[];
  keys text[];
  holder bigint;
  went_to jobq.job_state; -- scheduled for a suspect, which has no position
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..100 loop -- see cancel
    -- The key before the row: see unique_keys_take.
    select array[r.kind], array[r.unique_key] into kinds, keys
      from jobq.run r where r.id = requeue.job_id and r.unique_key is not null and r.state is not null;
    if found then
      holder := jobq.unique_key_take(kinds[1], keys[1], requeue.job_id);
      if holder <> requeue.job_id then
        perform jobq.unique_key_refuse(kinds[1], keys[1], holder);
      end if;
    end if;
    with taken as (
      delete from jobq.run r
        where r.id = requeue.job_id and (select e.ended_at is not null from jobq.run_end(r.lease_id, r.slot, r.finished_at) e)
          and r.unique_key is not distinct from keys[1] -- else it has ended since, and the next round takes its key
        returning r.id, r.lease_id, r.created_at, r.timeout, r.backoff_base, r.backoff_max, r.priority, r.attempts,
          r.max_attempts, r.crashes, r.args_apart, r.queue, r.kind, r.args, r.unique_key, r.last_error,
          r.checkpoint, r.metadata, r.tags, r.partition_key
    )
    insert into jobq.pending
        (id, lease_token, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, checkpoint, metadata, tags, partition_key)
      select t.id, t.lease_id, clock_timestamp(), t.created_at, t.timeout, t.backoff_base, t.backoff_max, t.priority,
          least(t.attempts, 32766), greatest(t.max_attempts, least(t.attempts, 32766) + 1), t.crashes, t.args_apart,
          t.queue, t.kind, t.args, t.unique_key, t.last_error, t.checkpoint, t.metadata, t.tags, coalesce(t.partition_key, '')
        from taken t
      returning case when position is null then 'scheduled' else 'available' end into went_to;
    if found then
      perform jobq.args_require(requeue.job_id);
      return went_to;
    end if;
    if keys is not null then -- somebody else has requeued or deleted it since
      perform jobq.unique_keys_release(kinds, keys, array[requeue.job_id]);
    end if;
    update jobq.pending p
      set run_at = clock_timestamp(), position = case when p.crashes < least(2, p.max_attempts - p.attempts) then nextval('jobq.position_seq') end, waits = null
      where p.id = requeue.job_id and p.position is null
      returning case when p.position is null then 'scheduled' else 'available' end into went_to;
    if found then
      perform jobq.wake('work', (select p.queue from jobq.pending p where p.id = requeue.job_id));
      return went_to;
    end if;
    if exists (select from jobq.pending p where p.id = requeue.job_id) then
      return 'available';
    end if;
    perform jobq.running_refuse(requeue.job_id);
    if not jobq.job_exists(requeue.job_id) then
      return null;
    end if;
  end loop;
  perform jobq.moving_refuse(requeue.job_id);
end $$;

-- delete_job deletes a job that does not run, and says whether there was one. It also deletes the job's latest 10,000 attempts.
-- Only a job that has snoozed for days can have more; retention deletes the others. (DELETE is a reserved word, hence the name.)
create function jobq.delete_job(job_id bigint) returns boolean
  language plpgsql
  as $$
declare
  deleted boolean := false;
  ended jobq.job_state; -- null: it had not
  held_kind text;
  held_key text;
  was_queue text;
  was_key text;
begin
  if job_id is null then
    raise sqlstate 'JQ001' using message = 'job_id must not be null';
  end if;
  for round in 1..100 loop -- see cancel
    delete from jobq.pending p where p.id = delete_job.job_id
      returning p.kind, p.unique_key, p.queue, p.partition_key into held_kind, held_key, was_queue, was_key;
    deleted := found;
    if not deleted then
      delete from jobq.run r
        where r.id = delete_job.job_id and (select e.ended_at is not null from jobq.run_end(r.lease_id, r.slot, r.finished_at) e)
        returning coalesce(r.state, 'completed'), r.kind, r.unique_key, r.queue, r.partition_key into ended, held_kind, held_key, was_queue, was_key;
      deleted := found;
    end if;
    if deleted then -- a key that is kept for a time is free as well
      -- One whose time has come is left to the janitor: somebody may be taking it, and others, at this moment.
      delete from jobq.unique_key u where u.kind = held_kind and u.key = held_key and u.job_id = delete_job.job_id
        and not (u.job_over and u.kept_until <= statement_timestamp());
    end if;
    exit when deleted;
    perform jobq.running_refuse(delete_job.job_id);
    if not jobq.job_exists(delete_job.job_id) then
      return false;
    end if;
  end loop;
  if not deleted then
    perform jobq.moving_refuse(delete_job.job_id);
  end if;
  if pg_sequence_last_value('jobq.dependency_seq') is not null then
    perform jobq.parents_ended(array[delete_job.job_id], as_ended => ended);
  end if;
  perform jobq.lane_freed(was_queue, was_key);
  delete from jobq.payload a where a.job_id = delete_job.job_id;
  delete from jobq.progress p where p.job_id = delete_job.job_id;
  delete from jobq.attempt t
    where t.job_id = delete_job.job_id and t.lease_token >= coalesce((
      select a.lease_token from jobq.attempt a where a.job_id = delete_job.job_id
        order by a.lease_token desc offset 9999 limit 1), 0);
  if pg_sequence_last_value('jobq.awaited_seq') >= extract(epoch from clock_timestamp()) then
    perform jobq.waiters_wake(array[delete_job.job_id]);
  end if;
  return true;
end $$;

-- backoff_delay is how long a job waits after so many failures: exponential with full jitter (M. Brooker,
-- "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The default base is 1 second. It is doubled
-- with each further failure, 20 times at most; the default cap is a day. The function must not fail for any
-- row, since the statement that ends many jobs would fail with it. An interval of years would overflow when
-- doubled, so it counts in seconds. An interval that passes the CHECK can have another length here: 100
-- months less 2,999 days is one day for the CHECK, which takes a month for 30 days, and 43 days here.
create function jobq.backoff_delay(failures integer, base interval, cap interval) returns interval
  language sql volatile parallel safe
  return random() * greatest(least(
    extract(epoch from coalesce(cap, interval '1 day')),
    extract(epoch from coalesce(base, interval '1 s')) * power(2, least(greatest(failures, 1) - 1, 20)),
    extract(epoch from interval '10 years')), 0) * interval '1 s';

-- partition_yield raises the error of a lock timeout if a transaction older than a second, such as pg_dump's, has a lock on one of
-- the tables. Whoever waits for a table to be theirs alone makes everybody wait who comes later, so it is better not to begin. The
-- owner of jobq may not be allowed to see how old the transactions of other roles are: then a transaction counts as old if it uses
-- the table `rare`, as hardly any other does.
create function jobq.partition_yield(rare regclass, busy regclass[]) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  holder record;
begin
  select a.pid, a.application_name as application, l.relation::regclass as name into holder
    from pg_locks l
    join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'relation' and l.granted and l.pid <> pg_backend_pid() and a.datname = current_database()
      and (l.relation = rare or l.relation = any(busy::oid[]))
      and (a.xact_start < clock_timestamp() - interval '1 s' or a.xact_start is null and l.relation = rare)
    order by a.xact_start
    limit 1;
  if found then
    raise lock_not_available using message = format('table %s is in use by session %s (%s)', holder.name, holder.pid, holder.application);
  end if;
end $$;

-- partition_add makes the partition of a day of run, past_lease or attempt, if it does not exist. It makes a table and then
-- attaches it, so that ends of jobs wait only for a moment. If the default partition has rows of the day, they stay there and the
-- day gets no partition: there may be millions of them, and ends would wait while they move.
--
-- It runs with its owner's rights, because only the owner may do this. So do partition_prune, payload_prune,
-- default_prune, history_sweep and history_analyze.
create function jobq.partition_add(parent text, day date) returns boolean
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  name text := parent || '_' || to_char(day, 'YYYYMMDD');
  key text := case parent when 'run' then 'lease_id' when 'past_lease' then 'id' when 'attempt' then 'finished_at' end;
  low text := jobq.lease_day(day);
  high text := jobq.lease_day(day + 1);
  caught boolean;
begin
  if key is null then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  if parent = 'attempt' then
    low := day::timestamp at time zone 'UTC';
    high := (day + 1)::timestamp at time zone 'UTC';
  end if;
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  -- Those who make and drop days take turns; nobody else waits for this lock. Not
  -- on the days: it would be refused while one of them is vacuumed.
  execute format('lock table only jobq.%I in share update exclusive mode', parent);
  if to_regclass(format('jobq.%I', name)) is not null then
    return false;
  end if;
  execute format('select exists (select from jobq.%I where %I >= %L and %2$I < %L)', parent || '_default', key, low, high) into caught;
  if caught then
    return false;
  end if;
  perform jobq.partition_yield(null, array[format('jobq.%I', parent || '_default')]::regclass[]);
  begin
    execute format('create table jobq.%I (like jobq.%I including defaults including constraints including storage)', name, parent);
    if (select c.relreplident from pg_class c where c.oid = format('jobq.%I', parent)::regclass) = 'f' then
      execute format('alter table jobq.%I replica identity full', name); -- see the table run
    end if;
    -- It locks the default partition, and reads it once more.
    execute format('alter table jobq.%I attach partition jobq.%I for values from (%L) to (%L)', parent, name, low, high);
  exception when check_violation then -- caught since
    return false;
  end;
  return true;
end $$;

-- For partition_add, default_prune, day_needed and export_first.
create index run_default_place_idx on jobq.run_default (lease_id, id);

-- kept_for is a retention within its limits, 1 day and 10 years, whatever a row says. Arithmetic with a longer one would fail, and each
-- sweep with it.
create function jobq.kept_for(retention interval) returns interval
  language sql immutable parallel safe
  return least(greatest(retention, interval '1 day'), interval '10 years');

-- keep_from is the time before which a job must have ended to be removed, for queues and states without a retention of their own.
create function jobq.keep_from() returns timestamptz
  language sql stable
  return statement_timestamp() - (select jobq.kept_for(s.finished_retention) from jobq.setting s);

-- retention_span is the shortest and the longest time for which finished jobs of any queue and state are
-- kept. Both are finished_retention if there is no failed_retention, and no queue has a retention of its
-- own. Needs queue_retention_idx.
create function jobq.retention_span(out shortest interval, out longest interval)
  language sql stable set enable_seqscan = off set jit = off
  as $$
    select jobq.kept_for(least(s.finished_retention, s.failed_retention, q.shortest)), jobq.kept_for(greatest(s.finished_retention, s.failed_retention, q.longest))
      from jobq.setting s
      cross join (
        select least(min(x.retention), min(x.failed_retention)) as shortest, greatest(max(x.retention), max(x.failed_retention)) as longest
          from jobq.queue x where x.retention is not null or x.failed_retention is not null
      ) q
  $$;

-- keep_from_day is the first day whose leases may hold a job that ended less than a retention ago; the default is
-- finished_retention. If days are kept until they are exported, it is the first day that was not, if that is earlier.
--
-- A job whose end is stored with its lease ends within 33 seconds of the claim, so at most on the next day: hence the minute that
-- is subtracted. A later end is stored in the job's own row (day_needed).
create function jobq.keep_from_day(retention interval default null) returns date
  language sql stable
  return (select least(((statement_timestamp() - jobq.kept_for(coalesce(retention, s.finished_retention)) - interval '1 minute') at time zone 'UTC')::date,
    case when s.keep_until_exported then s.exported_before end) from jobq.setting s);

-- day_needed says whether a day that is to be dropped must stay. A day of run stays if one of its leases
-- is held, if one of its jobs ended within the longest retention, or if there are dependencies on its
-- jobs, which stay while the child is unfinished (dependency_prune). So a job that runs for weeks keeps its
-- day. A day of past_lease stays while its jobs are visible.
--
-- It asks for the last end, which is an index look-up whatever the statistics say. If it asked for any end
-- since some time, the planner might read the whole day.
create function jobq.day_needed(parent text, day date) returns boolean
  language plpgsql stable
  as $$
declare
  low bigint := jobq.lease_day(day);
  high bigint := jobq.lease_day(day + 1);
  name text := 'run_' || to_char(day, 'YYYYMMDD');
  needed boolean := false;
begin
  if parent = 'run' then
    execute format($sql$
      select exists (select from jobq.lease l where l.id >= $1 and l.id < $2)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state = 'completed' order by r.finished_at desc limit 1) >= $3, false)
        or coalesce((select r.finished_at from jobq.%1$I r where r.state <> 'completed' order by r.finished_at desc limit 1) >= $3, false)
        or exists (select from jobq.dependency d where d.parent_lease >= $1 and d.parent_lease < $2)
    $sql$, name) using low, high, statement_timestamp() - (select t.longest from jobq.retention_span() t) into needed;
  elsif parent = 'past_lease' then
    needed := to_regclass(format('jobq.%I', name)) is not null
      or exists (select from jobq.run_default r where r.lease_id >= low and r.lease_id < high);
  end if;
  return needed;
end $$;

-- partition_prune takes one day out of run, past_lease or attempt: the earliest that is past the longest retention, or of which
-- history_sweep has left nothing. It returns the name of its table, or null if there is no such day. It
-- takes one day a transaction, because its lock makes ends of jobs wait. It gives up at once if a
-- transaction older than a second, such as pg_dump's, uses that day or its parent table (partition_yield).
--
-- A day of past_lease or attempt is dropped. A day of run becomes a table of its own, in which nobody finds its jobs any more.
-- payload_prune removes the large args of its jobs in steps, and then drops it. The table is renamed, from run_20261101 to
-- run_20261101_past, so that payload_prune can tell it from a day that an operator has detached in order to keep it.
--
-- A day counts as empty if its file is empty: autovacuum truncates the file when all is deleted, and a search for rows would read
-- the whole file. The leases of a day go with its last jobs.
create function jobq.partition_prune(parent text) returns text
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  old record;
  all_before date := jobq.keep_from_day((select t.longest from jobq.retention_span() t)); -- days before this one go as a whole
begin
  if parent not in ('run', 'past_lease', 'attempt') then
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  for old in
    select c.oid, c.relname as name, to_date(right(c.relname, 8), 'YYYYMMDD') as day
      from pg_inherits i
      join pg_class c on c.oid = i.inhrelid
      where i.inhparent = format('jobq.%I', parent)::regclass
        and c.relname ~ ('^' || parent || '_[0-9]{8}$') and right(c.relname, 8) < to_char(jobq.keep_from_day(), 'YYYYMMDD')
        and to_regclass(format('jobq.%I', c.relname || '_past')) is null -- else it waits until that one is dropped
      order by 2
  loop
    continue when old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0;
    continue when jobq.day_needed(parent, old.day);
    execute format('lock table only jobq.%I in share update exclusive mode', parent); -- see partition_add
    continue when not exists (select from pg_class c where c.oid = old.oid and c.relispartition); -- another session was faster
    perform jobq.partition_yield(old.oid::regclass,
      array[format('jobq.%I', parent), format('jobq.%I', parent || '_default')]::regclass[]);
    -- An undo may have put a job back into the day since, which is to be exported again:
    -- nobody does from here on. Or days are to be kept until they are exported.
    execute format('lock table only jobq.%I in access exclusive mode', parent);
    all_before := jobq.keep_from_day((select t.longest from jobq.retention_span() t));
    if old.day >= jobq.keep_from_day() or jobq.day_needed(parent, old.day)
        or old.day >= all_before and parent <> 'past_lease' and pg_relation_size(old.oid) > 0 then
      return null;
    end if;
    if parent = 'run' then
      delete from jobq.sweep w where w.day = old.day;
      execute format('alter table jobq.run detach partition jobq.%I', old.name);
      execute format('alter table jobq.%I rename to %I', old.name, old.name || '_past');
    else
      execute format('drop table jobq.%I', old.name);
    end if;
    return old.name;
  end loop;
  return null;
end $$;

-- payload_prune removes the large args of jobs of the earliest day that partition_prune has taken out. A call removes those of at
-- most payload_count jobs, and looks at job_count jobs at most, in the order of their ids, after the given job of the given day.
-- If another day is the earliest now, it begins with that day's first job. It returns the place where the next call goes on, and
-- how many payloads it has removed. If the day has no more jobs it drops the day, and returns no job. It returns no day if there
-- is none.
--
-- Example: with a day of 25,000 jobs and a job_count of 10,000, the first three calls look at 10,000, 10,000 and 5,000 jobs, and
-- the fourth drops the day.
--
-- Only a table with the name that partition_prune gives is such a day. A table run_20261101 that is not a partition belongs to an
-- operator, and stays.
create function jobq.payload_prune(after_day text, after_job bigint, job_count integer, payload_count integer)
  returns table (day text, last_job bigint, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  select c.relname into day
    from pg_class c
    where c.relnamespace = (select p.relnamespace from pg_class p where p.oid = 'jobq.run'::regclass)
      and c.relkind = 'r' and not c.relispartition and c.relname ~ '^run_[0-9]{8}_past$'
    order by 1
    limit 1;
  if day is null then
    return;
  end if;
  begin
    execute format($sql$
      with looked as materialized (
        select r.id, r.args_apart, count(*) filter (where r.args_apart) over (order by r.id rows unbounded preceding) as payloads
          from jobq.%I r
          where r.id > $1
          order by r.id
          limit $2
      ), taken as (
        select l.id, l.args_apart from looked l where l.payloads <= $3
      ), gone as (
        delete from jobq.payload a
          where a.job_id = any(array(select t.id from taken t where t.args_apart))
          returning a.job_id
      )
      select (select max(t.id) from taken t), (select count(*) from gone)
    $sql$, day)
      using case when day = after_day then after_job else 0 end, job_count, payload_count
      into last_job, removed;
    if last_job is null then
      execute format('drop table jobq.%I', day);
    end if;
  exception when undefined_table then -- another session was faster
    last_job := null;
    removed := 0;
  end;
  return next;
end $$;

-- attempts_forget deletes the attempts of jobs that were deleted: created has when each job was added, and ended_before when all
-- of them had ended. An attempt is in the partition of the day on which it ended, so the query is planned for the days between.
-- For 1,000 jobs of one day, most of which were added shortly before, these are two or three days; jobs that were added long ago
-- cost more.
create function jobq.attempts_forget(jobs bigint[], created timestamptz[], ended_before timestamptz) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  part record;
begin
  for part in
    select array_agg(j.id) as ids, min(j.created_at) as since
      from unnest(jobs, created) j(id, created_at)
      group by j.created_at >= ended_before - interval '3 days'
  loop
    execute format($sql$
      delete from jobq.attempt a where a.job_id = any($1) and a.finished_at >= %L and a.finished_at < %L
    $sql$, part.since - interval '1 minute', ended_before) using part.ids;
  end loop;
end $$;

-- sweep_begin chooses the day that history_sweep looks through next, and notes that this begins; null if there is none. It is a
-- day that stays, because of the longest retention, and that has passed a shorter retention since it was last looked through.
--
-- Example: with retentions of 1, 7 and 90 days, a day is looked through when it is 1 and 7 days old, and dropped when it is 90. If
-- jobs of an earlier day were left over, again_at says when that day is looked through again.
create function jobq.sweep_begin() returns date
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  span record;
  chosen date;
  held boolean;
  last_lease bigint;
begin
  with restored as (
    delete from jobq.sweep_again g
      where g.ctid = any(array(select x.ctid from jobq.sweep_again x order by x.lease_id limit 10000))
      returning g.lease_id
  )
  update jobq.sweep w set again_at = least(w.again_at, statement_timestamp())
    where w.day in (select date '2026-01-01' + (r.lease_id >> 40)::integer from restored r);
  select t.* into span from jobq.retention_span() t;
  if span.shortest = span.longest then
    return null;
  end if;
  -- What a sweep has left that did not come to its end: its day was dropped.
  delete from jobq.sweep_lease k
    where k.lease_id = any(array(
      select x.lease_id from jobq.sweep_lease x where x.lease_id < jobq.lease_day(jobq.keep_from_day(span.longest)) order by x.lease_id limit 10000));
  with kept as materialized (
    select jobq.kept_for(k.retention) as retention, jobq.keep_from_day(k.retention) as from_day
      from (
        select s.finished_retention from jobq.setting s
        union select s.failed_retention from jobq.setting s
        union select q.retention from jobq.queue q where q.retention is not null or q.failed_retention is not null
        union select q.failed_retention from jobq.queue q where q.retention is not null or q.failed_retention is not null
      ) k(retention)
      where k.retention is not null
  )
  select d.day into chosen
    from (
      select to_date(right(c.relname, 8), 'YYYYMMDD') as day
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'jobq.run'::regclass and c.relname ~ '^run_[0-9]{8}$'
    ) d
    left join jobq.sweep w on w.day = d.day
    where d.day >= jobq.keep_from_day(span.longest) and d.day < jobq.keep_from_day(span.shortest)
      and (w.day is null or w.again_at <= statement_timestamp() or w.began_at > statement_timestamp()
        or exists (
          select from kept k
            where d.day < k.from_day and d.day >= ((w.began_at - k.retention - interval '1 minute') at time zone 'UTC')::date))
    order by d.day
    limit 1;
  if chosen is null then
    return null;
  end if;
  -- While one of its leases is held, a row may move to a place that was looked at.
  held := exists (select from jobq.lease l where l.id >= jobq.lease_day(chosen) and l.id < jobq.lease_day(chosen + 1));
  if not held and chosen < jobq.keep_from_day() and to_regclass(format('jobq.past_lease_%s', to_char(chosen, 'YYYYMMDD'))) is not null then
    execute format('select l.id from jobq.past_lease_%s l order by l.id desc limit 1', to_char(chosen, 'YYYYMMDD')) into last_lease;
  end if;
  insert into jobq.sweep as w (day, began_at, next_block, last_lease, left_over) values (chosen, statement_timestamp(), 0, last_lease, held)
    on conflict (day) do update
      set began_at = excluded.began_at, again_at = null, next_block = 0, next_lease = null, last_lease = excluded.last_lease, left_over = held;
  return chosen;
end $$;

-- history_sweep deletes jobs that are past their retention from days of the history that stay because of other jobs. A call looks
-- at block_count blocks of a day's partition, or begins a day, or looks at lease_count of its leases. The table sweep holds the
-- place where the next call goes on, whoever makes it. It returns the day and how many jobs it has deleted; no day if there is
-- nothing to do.
--
-- Example: block_count 16, and a day of 40 blocks. The first call begins the day, the next three look at the blocks 0 to 15, 16 to
-- 31 and 32 to 39, and the fifth at the first of its leases.
--
-- As in default_prune, the statement that deletes also checks that the day may be deleted from. The large args and the attempts of
-- a job are deleted with it, its steps with the next step_prune. A job is left over if it has not ended, has ended later than
-- others of its day, is locked, or waits until the dependencies on it are deleted (dependency_prune): then the day is looked through again
-- a day later.
--
-- If the day is past finished_retention, its leases of which no job is left are deleted. A row of past_lease does not say which
-- these are, so each lease that is still needed is noted in sweep_lease. A lease that was written after the day was begun has a
-- greater id than last_lease, and stays.
create function jobq.history_sweep(block_count integer, lease_count integer) returns table (day date, removed bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  place jobq.sweep;
  name text;
begin
  removed := 0;
  select w.* into place from jobq.sweep w where w.next_block is not null or w.next_lease is not null order by w.day limit 1 for update;
  if not found then
    day := jobq.sweep_begin();
    if day is not null then
      return next;
    end if;
    return;
  end if;
  day := place.day;
  name := to_char(day, 'YYYYMMDD');
  if to_regclass('jobq.run_' || name) is null
      or day >= (select jobq.keep_from_day(t.shortest) from jobq.retention_span() t) then -- dropped; or kept for longer, or not exported, from now on
    delete from jobq.sweep w where w.day = place.day;
  elsif place.next_block is not null then
    removed := jobq.sweep_blocks(place, name, block_count);
  elsif to_regclass('jobq.past_lease_' || name) is null then
    update jobq.sweep w set next_lease = null where w.day = place.day;
  else
    perform jobq.sweep_leases(place, name, lease_count);
  end if;
  return next;
end $$;

-- sweep_blocks looks at the next blocks of a day, for history_sweep. It names the day's partition of run, and the bounds of its
-- leases are constants of the query, so that the other days are not locked.
create function jobq.sweep_blocks(place jobq.sweep, name text, block_count integer) returns bigint
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  block_end bigint := place.next_block + block_count;
  is_last boolean := block_end >= pg_relation_size(format('jobq.run_%s', name)::regclass) / current_setting('block_size')::bigint;
  removed bigint;
  stays boolean; -- some job whose time has come
  gone_ids bigint[];
  gone_created timestamptz[];
  last_end timestamptz;
begin
  execute format($sql$
    with page as materialized (
      select r.ctid as place, r.id, r.lease_id, r.slot, r.state, r.queue, r.created_at, r.finished_at
        from jobq.run_%1$s r
        where r.ctid >= %2$L and r.ctid < %3$L
    ), known as materialized (
      select p.place, p.id, p.lease_id, p.slot,
          coalesce(p.finished_at, l.claimed_at + nullif(l.ended_ms, -1) * interval '1 ms') as ended_at,
          jobq.kept_for(case when p.state <> 'completed' then coalesce(q.failed_retention, q.retention, s.failed_retention, s.finished_retention)
            else coalesce(q.retention, s.finished_retention) end) as retention,
          s.keep_until_exported and $1 >= s.exported_before as is_kept
        from page p
        cross join jobq.setting s
        left join lateral (select x.retention, x.failed_retention from jobq.queue x where x.name = p.queue limit 1) q on true
        left join lateral (
          select x.claimed_at, x.ended_ms[array_position(x.ended_slots, p.slot)] as ended_ms from jobq.lease x where x.id = p.lease_id
          union all
          select x.claimed_at, x.ended[p.slot] from jobq.past_lease x where x.id = p.lease_id and x.id >= %4$s and x.id < %5$s
          limit 1
        ) l on true
    ), due as materialized (
      select k.place, k.id, k.lease_id, k.ended_at,
          not k.is_kept and k.ended_at < statement_timestamp() - k.retention
            and (select true from jobq.dependency d where d.parent = k.id and d.parent_lease = k.lease_id limit 1) is null as goes
        from known k
        where k.ended_at is null or $1 < ((statement_timestamp() - k.retention - interval '1 minute') at time zone 'UTC')::date
    ), old as materialized (
      select d.place, d.ended_at
        from due d
        cross join lateral (select x.ctid from jobq.run_%1$s x where x.ctid = d.place for update skip locked) l
        where d.goes
    ), gone as materialized (
      delete from jobq.run_%1$s r
        where r.ctid = any(array(select o.place from old o))
        returning r.ctid as place, r.id, r.args_apart, r.created_at
    ), args_gone as (
      delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
    ), noted as (
      insert into jobq.sweep_lease (lease_id)
        select distinct k.lease_id
          from known k
          where $2 and k.slot > 0 and not exists (select from gone g where g.place = k.place)
          order by k.lease_id
        on conflict do nothing
    )
    select (select count(*) from gone), (select count(*) from due) > (select count(*) from gone),
        (select array_agg(g.id) from gone g), (select array_agg(g.created_at) from gone g), (select max(o.ended_at) from old o)
  $sql$, name, format('(%s,0)', place.next_block), format('(%s,0)', block_end), jobq.lease_day(place.day), jobq.lease_day(place.day + 1))
    using place.day, place.last_lease is not null
    into removed, stays, gone_ids, gone_created, last_end;
  if removed > 0 then
    perform jobq.attempts_forget(gone_ids, gone_created, last_end + interval '1 minute');
  end if;
  stays := stays or place.left_over;
  update jobq.sweep w
    set next_block = case when not is_last then block_end end,
      next_lease = case when is_last and place.last_lease is not null then jobq.lease_day(place.day) - 1 end,
      left_over = stays,
      again_at = case when is_last and stays then least(w.again_at, place.began_at + interval '1 day') else w.again_at end
    where w.day = place.day;
  return removed;
end $$;

-- sweep_leases looks at the next leases of a day, for history_sweep.
create function jobq.sweep_leases(place jobq.sweep, name text, lease_count integer) returns void
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last bigint; -- null: there are no more
begin
  execute format($sql$
    with page as materialized (
      select l.id from jobq.past_lease_%s l where l.id > $1 and l.id <= $2 order by l.id limit $3
    ), gone as (
      delete from jobq.past_lease_%1$s l
        where l.id = any(array(
          select p.id from page p
            where (select true from jobq.sweep_lease k where k.lease_id = p.id) is null
              and (select true from jobq.sweep_again g where g.lease_id = p.id limit 1) is null))
    )
    select max(p.id) from page p
  $sql$, name) using place.next_lease, place.last_lease, lease_count into last;
  -- No more of this day than there are leases: an index range, from where the last call has ended.
  delete from jobq.sweep_lease k
    where k.lease_id > place.next_lease and k.lease_id <= coalesce(last, jobq.lease_day(place.day + 1) - 1);
  update jobq.sweep w set next_lease = last where w.day = place.day;
end $$;

-- retention_changed makes history_sweep look again through days that are past a retention that has changed.
-- No day is looked through until it commits: otherwise the sweep of a day would go on with the retention of
-- before.
create function jobq.retention_changed() returns trigger
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  own_retention interval; -- of a queue; null: as of all
  own_failed_retention interval;
begin
  lock table jobq.sweep in exclusive mode;
  if tg_relid = 'jobq.queue'::regclass and tg_op <> 'DELETE' then
    own_retention := new.retention;
    own_failed_retention := new.failed_retention;
  end if;
  update jobq.sweep w set again_at = clock_timestamp()
    from jobq.setting s
    where w.day < ((statement_timestamp() - least(coalesce(own_retention, s.finished_retention),
        coalesce(own_failed_retention, own_retention, s.failed_retention, s.finished_retention))) at time zone 'UTC')::date;
  return null;
end $$;
create trigger retention_changed after update of finished_retention, failed_retention on jobq.setting
  for each row when (old.finished_retention is distinct from new.finished_retention or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_changed after update of retention, failed_retention on jobq.queue
  for each row when (old.retention is distinct from new.retention or old.failed_retention is distinct from new.failed_retention)
  execute function jobq.retention_changed();
create trigger retention_added after insert on jobq.queue
  for each row when (new.retention is not null or new.failed_retention is not null) execute function jobq.retention_changed();
create trigger retention_removed after delete on jobq.queue
  for each row when (old.retention is not null or old.failed_retention is not null) execute function jobq.retention_changed();

-- default_prune deletes rows of the default partition of run, past_lease or attempt that are past the retention of their queue and
-- state. Attempts go with their jobs, and at the latest after the longest retention. The large args of jobs go with them.
--
-- A call looks at up to row_count rows of days before keep_from_day, after the given place (of attempts, from it on): in the order
-- of lease and job, or of finished_at as microseconds since 1970. It returns how many rows it has looked at, and the place of the
-- last one, where the next call begins. Without the place, the next call would read what this one has deleted, for as long as any
-- transaction can still see that, and all rows that stay because their jobs run or ended later.
--
-- The statement that deletes also reads what must be kept. So if a transaction brings a row back, such as an undo, and says that
-- the row's day is to be exported again, both are seen or neither.
create function jobq.default_prune(parent text, after bigint, after_job bigint, row_count integer)
  returns table (looked bigint, last bigint, last_job bigint)
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
declare
  span record;
  gone_ids bigint[];
  gone_created timestamptz[];
begin
  select t.* into span from jobq.retention_span() t;
  if parent = 'attempt' then
    with gone as (
      delete from jobq.attempt_default t
        where t.ctid = any(array(
          select x.ctid from jobq.attempt_default x
            where x.finished_at >= timestamptz 'epoch' + default_prune.after * interval '1 microsecond'
              and x.finished_at < (select jobq.keep_from_day(span.longest))::timestamp at time zone 'UTC'
            order by x.finished_at limit default_prune.row_count for update skip locked))
        returning t.finished_at
    )
    select count(*), (extract(epoch from max(g.finished_at)) * 1000000)::bigint, 0 into looked, last, last_job from gone g;
  elsif parent = 'run' then
    with page as materialized (
      select x.ctid as place, x.id, x.lease_id, x.slot, x.finished_at, x.queue, x.state
        from jobq.run_default x
        where (x.lease_id, x.id) > (default_prune.after, default_prune.after_job) and x.lease_id < (select jobq.lease_day(jobq.keep_from_day(span.shortest)))
        order by x.lease_id, x.id
        limit default_prune.row_count
    ), old as materialized (
      select l.place
        from page p
        cross join jobq.setting s
        left join lateral (select x.retention, x.failed_retention from jobq.queue x where x.name = p.queue limit 1) q on true
        cross join lateral jobq.run_end(p.lease_id, p.slot, p.finished_at) e
        cross join lateral (select x.ctid as place from jobq.run_default x where x.ctid = p.place for update skip locked) l
        where e.ended_at < statement_timestamp() - case when p.state <> 'completed'
            then coalesce(q.failed_retention, q.retention, s.failed_retention, s.finished_retention)
            else coalesce(q.retention, s.finished_retention) end
          and not exists (select from jobq.dependency d where d.parent = p.id and d.parent_lease = p.lease_id)
    ), gone as (
      delete from jobq.run_default r where r.ctid = any(array(select o.place from old o)) returning r.id, r.args_apart, r.created_at
    ), args_gone as (
      delete from jobq.payload a where a.job_id = any(array(select g.id from gone g where g.args_apart))
    )
    select count(*), max(p.lease_id), (select p.id from page p order by p.lease_id desc, p.id desc limit 1),
        (select array_agg(g.id) from gone g), (select array_agg(g.created_at) from gone g)
      into looked, last, last_job, gone_ids, gone_created from page p;
    if span.shortest < span.longest then
      perform jobq.attempts_forget(gone_ids, gone_created, statement_timestamp());
    end if;
  elsif parent = 'past_lease' then
    with page as materialized (
      select x.id from jobq.past_lease_default x
        where x.id > default_prune.after and x.id < (select jobq.lease_day(jobq.keep_from_day()))
        order by x.id
        limit default_prune.row_count
    ), gone as (
      delete from jobq.past_lease_default l
        where l.id = any(array(
          select p.id from page p
            where not exists (select from jobq.run_default r where r.lease_id = p.id)
              and to_regclass(format('jobq.run_%s', to_char(date '2026-01-01' + (p.id >> 40)::integer, 'YYYYMMDD'))) is null))
    )
    select count(*), max(p.id), 0 into looked, last, last_job from page p;
  else
    raise sqlstate 'JQ001' using message = format('no partitioned table %L', parent);
  end if;
  last := coalesce(last, after);
  last_job := coalesce(last_job, after_job);
  return next;
end $$;

-- history_analyze makes the statistics of run as a whole, if it is time, and says whether it did. Autovacuum makes statistics of
-- each day, but never of the whole: then the planner does not know that many jobs have the same lease, and lists look up the lease
-- of each job one by one. The queries of jobq need no other statistics of the whole, so the lease is the only column.
--
-- It is time if there are 1,000 rows or more, and either no statistics, or statistics as old as `every`, or ten times as many rows
-- as then. It looks for the statistics themselves, too, because PostgreSQL keeps the time of an analyze that was rolled back.
--
-- An analyze of the whole makes statistics of each day as well. It reads at most 300 pages of each day, and of the whole, for each
-- 1 of the statistics target. So the target is smaller the more days there are. A day that is being vacuumed is left out.
create function jobq.history_analyze(every interval) returns boolean
  language plpgsql security definer
  set search_path = pg_catalog, pg_temp set default_statistics_target = 10 set client_min_messages = error
  as $$
declare
  now_rows float8; -- as far as it is known without counting
  day_count bigint;
  known_rows float8;
  analyzed_at timestamptz;
begin
  select sum(greatest(pg_stat_get_live_tuples(d.oid), d.reltuples)), count(*) into now_rows, day_count
    from pg_inherits i
    join pg_class d on d.oid = i.inhrelid
    where i.inhparent = 'jobq.run'::regclass;
  select w.reltuples, pg_stat_get_last_analyze_time(w.oid) into known_rows, analyzed_at
    from pg_class w
    join pg_namespace n on n.oid = w.relnamespace
    join pg_stats s on s.schemaname = n.nspname and s.tablename = w.relname and s.inherited and s.attname = 'lease_id'
    where w.oid = 'jobq.run'::regclass;
  if now_rows < 1000 or analyzed_at > clock_timestamp() - every and now_rows < 10 * known_rows then
    return false;
  end if;
  perform set_config('default_statistics_target', greatest(1, least(10, 100 / day_count))::text, true);
  lock table only jobq.run in share update exclusive mode; -- see partition_add
  analyze (skip_locked) jobq.run (lease_id);
  return true;
end $$;

-- The first days. The janitor makes the others ahead of need.
select jobq.partition_add(parent, (now() at time zone 'UTC')::date + ahead)
  from unnest(array['run', 'past_lease', 'attempt']) as parent, generate_series(0, 3) as ahead;

-- rate_burst_default is the burst of a rate for which none was set: the jobs of a tenth of a second, 1 at
-- least. A burst makes up for claims that come a little late: with a burst of 1, each late claim
-- would lower the rate.
create function jobq.rate_burst_default(rate_jobs integer, rate_period interval) returns integer
  language sql immutable parallel safe
  return least(greatest(ceil(rate_jobs * 0.1 / extract(epoch from rate_period)), 1), 1000000)::integer;

-- rate_step_us is the time from one job to the next at a rate, in microseconds, rounded up.
create function jobq.rate_step_us(rate_jobs integer, rate_period interval) returns bigint
  language sql immutable parallel safe
  return ceil(extract(epoch from rate_period) * 1000000 / rate_jobs)::bigint;

-- rate_ready_at is until when a rate is used up, at the time `at`, after it has changed from a step of was_step_us to step_us:
-- never before `at`. What was used of the earlier rate counts in jobs. Example: 5 jobs were used ahead, at 1 s each; with 100 ms a
-- job it is 500 ms from now. What lies further ahead than twice the burst, and 10 s, is of a clock that was set back since, or of a
-- burst that was far larger: nothing of the rate counts as used.
create function jobq.rate_ready_at(ready_at timestamptz, was_step_us bigint, step_us bigint, burst integer, at timestamptz) returns timestamptz
  language sql stable parallel safe
  return at + case
      when extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us > 2 * burst * step_us::numeric + 10000000 then 0
      else greatest(least(ceil(extract(epoch from ready_at - at) * 1000000 * step_us / was_step_us), burst * step_us::numeric), 0)
    end * interval '1 us';

-- throttle_ready_at is until when a queue's rate is used up, at the time `at`, for a rate of this step and burst (rate_ready_at).
create function jobq.throttle_ready_at(of_queue text, step_us bigint, burst integer, at timestamptz) returns timestamptz
  language sql stable
  return coalesce((
    select jobq.rate_ready_at(t.ready_at, t.step_us, throttle_ready_at.step_us, throttle_ready_at.burst, throttle_ready_at.at)
      from jobq.throttle t
      where t.queue = of_queue
      order by t.number desc
      limit 1), at);

-- throttled_until is when a queue with this rate may start its next job; null if it may
-- do so now.
create function jobq.throttled_until(of_queue text, rate_jobs integer, rate_period interval, rate_burst integer) returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.throttle_ready_at(of_queue, r.step_us, r.burst, r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(throttled_until.rate_jobs, throttled_until.rate_period) as step_us,
            coalesce(throttled_until.rate_burst, jobq.rate_burst_default(throttled_until.rate_jobs, throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      where throttled_until.rate_jobs is not null
  );

-- key_throttled_until is when a partition key of a queue with this rate of its keys may start its next job, null when it may do so
-- now. Needs lane_pkey only.
create function jobq.key_throttled_until(of_queue text, of_key text, rate_jobs integer, rate_period interval, rate_burst integer) returns timestamptz
  language sql stable
  return (
    select nullif(greatest(jobq.rate_ready_at(l.rate_ready_at, l.rate_step_us, r.step_us, r.burst, r.at) - (r.burst - 1) * r.step_us * interval '1 us', r.at), r.at)
      from (
        select jobq.rate_step_us(key_throttled_until.rate_jobs, key_throttled_until.rate_period) as step_us,
            coalesce(key_throttled_until.rate_burst, jobq.rate_burst_default(key_throttled_until.rate_jobs, key_throttled_until.rate_period)) as burst,
            statement_timestamp() as at
      ) r
      cross join lateral (
        select x.rate_ready_at, x.rate_step_us from jobq.lane x
          where key_throttled_until.rate_jobs is not null and x.queue = of_queue and x.key = of_key and x.rate_ready_at is not null limit 1
      ) l
  );

-- turn_shareable says whether several claims of a queue may have its turn at once: 200 lanes are ready, and there is no work that
-- needs one claim alone. Such work is a limit or a rate to keep, weights, groups, paused keys to handle, and lanes that must
-- become ready without being taken from.
-- Needs lane_pkey, lane_turn_idx, lane_full_idx, lane_throttled_idx, lane_hint_pkey, key_weight_pkey and queue_pkey only.
create function jobq.turn_shareable(of_queue text) returns boolean
  language plpgsql stable
  as $$
begin
  return exists (select from jobq.lane x where x.queue = of_queue and x.key = '' and x.unheld is not null and x.group_clock is null)
    and not exists (select from jobq.queue q where q.name = of_queue
      and (q.max_running is not null or q.rate_jobs is not null or q.key_limit is not null or q.key_rate_jobs is not null or q.key_separator is not null))
    and (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is null
    and (select x.rate_step_us from jobq.lane x where x.queue = of_queue and x.throttled_until is not null order by x.rate_step_us limit 1) is null
    and (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0 order by h.id limit 1) is null
    and (select x.full_limit from jobq.lane x where x.queue = of_queue and x.full_limit is not null order by x.full_limit limit 1) is null
    and (select count(*) from (select from jobq.lane x where x.queue = of_queue and x.turn is not null order by x.turn limit 200) x) = 200;
end $$;

-- queue_admit says how many jobs of a queue may be claimed now, at most jobs_max, and keeps the number for the JobClaim that
-- follows in the same transaction. queue_charge is the last of the three. Without limits all are admitted.
--
-- Claims of one queue take turns: queue_admit locks the turn until the transaction ends. Ends, extensions and inserts do not need
-- the turn, and go on. A claim that carries results is not patient: waiting would delay the storing of the results. It waits for
-- about as long as one other claim takes, is then told that the queue is busy, and asks again. So is any claim that
-- has waited for five seconds.
--
-- The count comes after the lock, in a statement of its own, so that its snapshot has all that was claimed under the lock before:
--
--   limit 3, two run; A and B want one each
--   A  lock; counts 2; claims 1; commits
--   B  lock, after that; counts 3; claims none
--
-- The jobs that run are counted from the leases: their jobs without those that have ended. There is no counter that could be
-- wrong. A job whose end is stored in its own row, and not yet in its lease, counts until it is there. The jobs of a dead worker
-- count until its leases are reaped.
--
-- slots_free is how many of the worker's slots have no job. If the limit leaves more than eight times as many jobs, up to an
-- eighth of those is admitted, to be claimed ahead. A job that waits in a worker counts as running.
--
-- With sharing, a claim of 100 jobs or more has the turn together with others like it, if turn_shareable says so. lane_claim says
-- how these keep apart. Claims that do not share wait for all of them, and the other way round. If a limit has come while a
-- sharing claim waited, it is told that the queue is busy.
--
-- blocked says why fewer were admitted than asked for: limit, rate or busy. With rate, wait_ms is how long to wait until half of
-- the burst may start, or all that is asked for: not only the next job, so that claims are few, and never so late that the rate is
-- not reached.
-- Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_admit(of_queue text, jobs_max integer, slots_free integer, patient boolean, sharing boolean default false)
  returns table (admitted integer, blocked text, wait_ms bigint)
  language plpgsql
  as $$
declare
  shared constant boolean := sharing and jobs_max >= 100 and jobq.turn_shareable(of_queue);
  turn_wait_ms constant integer := case when patient then 5000 else 25 end; -- a claim of 1,000 jobs has the turn for about 25 ms
  is_ours boolean; -- the turn
  q record;
  room bigint; -- what the limit leaves
  step bigint;
  burst integer;
  at timestamptz;
  left_us bigint; -- of the burst
begin
  admitted := 0;
  blocked := 'busy';
  wait_ms := 0;
  perform set_config('jobq_claim.running', '', true);
  perform set_config('jobq_claim.shared', shared::text, true);
  is_ours := case when shared then jobq.turn_share('queue ' || of_queue, turn_wait_ms) else jobq.turn_take('queue ' || of_queue, turn_wait_ms) end;
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not is_ours or shared and (q.max_running is not null or q.rate_jobs is not null) then
    perform set_config('jobq_claim.admitted', '', true);
    return next;
    return;
  end if;
  admitted := jobs_max;
  blocked := '';
  if q.max_running is not null then
    select greatest(q.max_running - coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0), 0) into room
      from jobq.lease l where l.queue = of_queue;
    if admitted > room / 8 and admitted > least(slots_free, room) then
      admitted := greatest(least(slots_free, room), least(admitted, room / 8));
      blocked := 'limit';
    end if;
    perform set_config('jobq_claim.running', (q.max_running - room)::text, true);
  end if;
  if q.rate_jobs is not null and admitted > 0 then
    step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    at := clock_timestamp();
    left_us := burst * step - ceil(extract(epoch from jobq.throttle_ready_at(of_queue, step, burst, at) - at) * 1000000)::bigint;
    if left_us / step < admitted then
      wait_ms := greatest(ceil((least(admitted - left_us / step, greatest(burst / 2, 1)) * step - left_us % step) / 1000.0), 1);
      admitted := left_us / step;
      blocked := 'rate';
    end if;
  end if;
  perform set_config('jobq_claim.admitted', admitted::text, true);
  return next;
end $$;

-- queue_charge ends a claim of a queue with limits. It takes the claimed jobs from the rate, at the time of the claim: so in no
-- span of time, by claimed_at, have more jobs started than the rate and its burst allow. If the claim is rolled back, so is this.
--
-- It also wakes other workers if the transaction has ended jobs of the queue (ended), found the queue at its limit, and leaves
-- room in it: they may have been refused before.
-- Needs queue_pkey, lease_queue_idx and throttle_pkey only.
create function jobq.queue_charge(of_queue text, ended integer) returns void
  language plpgsql
  as $$
declare
  q record;
  c record;
  step bigint;
  burst integer;
  ready_at timestamptz;
begin
  select x.max_running, x.rate_jobs, x.rate_period, x.rate_burst into q from jobq.queue x where x.name = of_queue;
  if not found or (q.rate_jobs is null and (q.max_running is null or ended = 0)) then
    return;
  end if;
  -- queue_admit has counted after the ends.
  if q.rate_jobs is null and nullif(current_setting('jobq_claim.running', true), '')::bigint + ended < q.max_running then
    return;
  end if;
  -- A lease of this transaction's making was claimed since it began, and has no ends. One of
  -- before, which it was told of ends of, is of its writing as well.
  select coalesce(sum(cardinality(l.job_ids) - cardinality(l.ended_slots)), 0) as running,
      coalesce(sum(cardinality(l.job_ids)) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now() and l.ended_slots = '{}'), 0) as jobs,
      max(l.claimed_at) filter (where l.xmin = pg_current_xact_id()::xid and l.claimed_at >= now() and l.ended_slots = '{}') as claimed_at
    into c
    from jobq.lease l where l.queue = of_queue;
  -- Without the lock, as after a claim that was told that it is busy, the throttle is not
  -- written. With it, it is after a change of the rate as well: what was used of the old one
  -- would else come free at its pace.
  step := jobq.rate_step_us(q.rate_jobs, q.rate_period);
  if q.rate_jobs is not null and current_setting('jobq_claim.admitted', true) <> '' and (c.jobs > 0
      or step <> (select t.step_us from jobq.throttle t where t.queue = of_queue order by t.number desc limit 1)) then
    burst := coalesce(q.rate_burst, jobq.rate_burst_default(q.rate_jobs, q.rate_period));
    ready_at := jobq.throttle_ready_at(of_queue, step, burst, coalesce(c.claimed_at, clock_timestamp())) + c.jobs * step * interval '1 us';
    with old as (
      delete from jobq.throttle t
        where t.ctid = any(array(select x.ctid from jobq.throttle x where x.queue = of_queue order by x.number desc limit 1))
        returning t.number
    )
    insert into jobq.throttle (queue, number, step_us, ready_at)
      values (of_queue, coalesce((select o.number from old o), 0) + 1, step, ready_at);
  end if;
  if c.running < q.max_running and c.running - c.jobs + ended >= q.max_running then
    perform jobq.notify('room', of_queue);
  end if;
end $$;

-- line_priority is the least urgent priority that is more urgent than below, among a queue's jobs without a
-- partition key, of those of these kinds that are not paused; null if there is none. It is a function with
-- settings of its own, since without statistics the planner expects few jobs, and would rather sort the
-- whole line. Needs pending_claim_idx and kind_paused_idx only.
create function jobq.line_priority(of_queue text, kinds text[], below integer) returns smallint
  language sql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
    select p.priority
      from jobq.pending p
      where p.queue = of_queue and p.partition_key = '' and p.position is not null and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and p.priority < below
      order by p.priority desc, p.position desc
      limit 1
  $$;

-- lane_pause handles the hints of pauses: the lane of a key that was paused since the last claim becomes not ready, not full and
-- not throttled. It takes up to 1,000 of these hints, and returns whether those were all. Afterwards lane_hints_take and
-- lane_prune leave the lanes of paused keys as they are.
-- The caller has the queue's turn. Needs lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_pause(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  hints_max constant integer := 1000;
  hints integer;
begin
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.ctid = any(array(select x.ctid from jobq.lane_hint x where x.queue = of_queue and x.id < 0 order by x.id limit hints_max))
      returning h.key
  ), stopped as (
    update jobq.lane l
      set turn = null, full_limit = null, throttled_until = null, due = null, due_turn = null
      where l.ctid = any(array(
        select (select x.ctid from jobq.lane x
            where x.queue = of_queue and x.key = k.key and (x.turn is not null or x.full_limit is not null or x.throttled_until is not null) limit 1)
          from (select e.key from hints_taken e group by e.key) k
          -- It may go on already.
          where (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = k.key limit 1) is not null))
  )
  select count(*) into hints from hints_taken;
  return hints < hints_max;
end $$;

-- lane_hints_take deletes up to hints_max hints of a queue, and makes the lanes of their keys ready, in the order of the hints.
-- Lanes of paused keys and throttled lanes stay as they are.
--
--   after_hint  the id of the last hint that the claim has taken; later hints have a higher id
--   apart       a key without a lane gets none and is returned among fresh, since most such keys are empty before the claim ends
--   shared      other claims run beside this one: the hint of a key stays if another claim has locked its lane, since that claim
--               may have looked at the key before the hint came
--
-- hints is how many it has looked at, and last_hint the id of the last one. readied are the keys whose lanes it has made ready.
-- The caller has the queue's turn. Needs lane_hint_pkey, paused_key_pkey and lane_pkey only.
create function jobq.lane_hints_take(of_queue text, after_hint bigint, hints_max integer, apart boolean, shared boolean)
  returns table (hints integer, last_hint bigint, readied text[], fresh text[])
  language plpgsql
  as $$
begin
  return query
    with found as materialized (
      select x.id, x.key, x.ctid as place from jobq.lane_hint x where x.queue = of_queue and x.id > after_hint order by x.id limit hints_max
    ), looked as materialized (
      -- A lane that is ready stays as it is. Nobody has locked it if it has no xmax: whoever does from now on finds what the hint tells of.
      select e.key, e.first, l.known is not null as known, coalesce(l.stays, false) as stays
        from (select f.key, min(f.id) as first from found f group by f.key) e
        left join lateral (
          select true as known, x.turn is not null and x.looks = '{}' and (not lane_hints_take.shared or x.xmax = 0) as stays
            from jobq.lane x where x.queue = of_queue and x.key = e.key limit 1
        ) l on true
    ), others as materialized (
      select o.key
        from looked o
        where lane_hints_take.shared and o.known and not o.stays
          and not exists (select from jobq.lane x where x.queue = of_queue and x.key = o.key limit 1 for update skip locked)
    ), hints_taken as (
      delete from jobq.lane_hint h
        where h.ctid = any(array(select f.place from found f where f.key not in (select o.key from others o)))
    ), k as materialized (
      select o.key, o.first, o.known
        from looked o
        where not o.stays and o.key not in (select t.key from others t)
          and ((select p.key from jobq.paused_key p where p.queue = of_queue order by p.key limit 1) is null -- asked once
            or (select p.key from jobq.paused_key p where p.queue = of_queue and p.key = o.key limit 1) is null)
    ), hinted as (
      insert into jobq.lane as l (queue, key, turn, hinted)
        select of_queue, n.key, n.turn, n.turn
          from (
            select k.key, nextval('jobq.lane_turn_seq') as turn
              from (select x.key from k x where x.known or not lane_hints_take.apart order by x.first) k
          ) n
        on conflict on constraint lane_pkey do update
          set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end, full_limit = null, hinted = excluded.hinted
          where l.turn is null and l.throttled_until is null or l.looks <> '{}'
        returning l.key, l.turn in (l.hinted, l.due_turn) as readied
    )
    select (select count(*) from found)::integer, (select max(f.id) from found f), array(select h.key from hinted h where h.readied),
      array(select k.key from k where not k.known and lane_hints_take.apart order by k.first);
end $$;

-- lane_pick locks jobs for lane_claim_sets: of each of the keys, in their order, at most its share, and at most wanted jobs of all
-- keys together. It reads one job more than the share of each key, and never reads past jobs of other kinds: it ends before the
-- first key that has such jobs within its share, and mixed says so.
--
-- visited is how many of the keys it has looked at. served, emptied and unserved hold the numbers of these keys, counted from 1:
--
--   emptied   all waiting jobs of the key were locked
--   served    some were locked, and others wait
--   unserved  none was locked, though jobs wait, for example because somebody else has locked them
--
-- last_taken is how many jobs it has locked of the last visited key. Needs pending_claim_idx only.
create function jobq.lane_pick(of_queue text, keys text[], kinds text[], shares integer[], wanted integer)
  returns table (ids bigint[], places tid[], visited integer, mixed boolean, served integer[], emptied integer[], unserved integer[], last_taken integer)
  language plpgsql
  as $$
begin
  return query
    with walk as materialized (
      select l.n::integer as n, l.share, w.places, cardinality(w.places) as found, coalesce(w.first_other <= l.share, false) as mixed
        from unnest(lane_pick.keys, lane_pick.shares) with ordinality as l(key, share, n)
        cross join lateral (
          select coalesce(array_agg(x.place), '{}') as places, array_position(array_agg(x.fits), false) as first_other
            from (
              select p.ctid as place, p.kind = any(lane_pick.kinds) as fits
                from jobq.pending p
                where p.queue = of_queue and p.partition_key = l.key and p.position is not null
                order by p.priority, p.position
                limit l.share + 1
            ) x
        ) w
    ), chosen as materialized (
      select w.n, w.found, w.places[1 : least(w.found, w.share, lane_pick.wanted - w.before)] as places
        from (
          select x.*, coalesce(sum(least(x.found, x.share)) over (order by x.n rows between unbounded preceding and 1 preceding), 0) as before,
              bool_or(x.mixed) over (order by x.n rows unbounded preceding) as is_over
            from walk x
        ) w
        where w.before < lane_pick.wanted and not w.is_over
    ), locked as materialized (
      select coalesce(array_agg(y.id), '{}') as ids, coalesce(array_agg(y.place), '{}') as places
        from (
          -- Of a job that was changed since the statement began, the place is another one.
          select x.id, x.ctid as place
            from jobq.pending x
            where x.ctid = any(array(select unnest(c.places) from chosen c)) and x.queue = of_queue and x.position is not null and x.kind = any(lane_pick.kinds)
            for update skip locked
        ) y
    ), lane as materialized (
      select c.n, c.found, cardinality(c.places) - case -- seldom is any missed
          when (select cardinality(k.places) from locked k) = (select sum(cardinality(o.places)) from chosen o) then 0
          else (select count(*) from unnest(c.places) as p(place) where p.place not in (select unnest(k.places) from locked k))
        end as taken
        from chosen c
    )
    select k.ids, k.places, r.n, exists (select from walk w where w.n = r.n + 1 and w.mixed),
        array(select l.n from lane l where l.taken > 0 and l.taken < l.found order by l.n),
        array(select l.n from lane l where l.taken = l.found order by l.n),
        array(select l.n from lane l where l.taken = 0 and l.found > 0 order by l.n),
        (select l.taken from lane l where l.n = r.n)::integer
      from locked k
      cross join (select coalesce(max(l.n), 0) as n from lane l) r;
end $$;

-- lane_weights sums up the weights of lanes, and the jobs that are due of their turns. The lanes are the first ones with a turn
-- after after_turn and up to to_turn, and then the given keys, which have no lane: lanes_max of both together at most. Needs
-- lane_turn_idx and key_weight_pkey only.
create function jobq.lane_weights(of_queue text, after_turn bigint, to_turn bigint, keys text[], lanes_max integer)
  returns table (weights integer, dues integer)
  language plpgsql
  as $$
begin
  return query
    select coalesce(sum(w.weight), 0)::integer, coalesce(sum(least(w.due, w.weight)), 0)::integer
      from (
        select k.due, coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key limit 1), 1)::integer as weight
          from (
            (select x.key, x.due from jobq.lane x
              where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_weights.to_turn order by x.turn limit lanes_max)
            union all
            select f.key, null from unnest(lane_weights.keys) as f(key)
            limit lane_weights.lanes_max
          ) k
      ) w;
end $$;

-- lane_shares returns, for each of the keys, the number of jobs that a claim of wanted jobs takes, where some keys have weights
-- (lane_claim has the rule, and explains turns_at_once). dues is what is left of each key's current turn. lefts is what is left of
-- its next turn after the share was taken: 0 if the lane goes to the back, null if that turn has not begun. Needs key_weight_pkey
-- and lane_pkey only.
create function jobq.lane_shares(of_queue text, keys text[], wanted integer, turns_at_once text)
  returns table (shares integer[], dues integer[], lefts integer[])
  language plpgsql
  as $$
begin
  return query
    with own as materialized (
      select w.n, w.weight, least(w.due, w.weight) as due
        from (
          select k.n,
              coalesce((select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = k.key limit 1), 1)::integer as weight,
              (select x.due from jobq.lane x where x.queue = of_queue and x.key = k.key limit 1) as due
            from unnest(lane_shares.keys) with ordinality as k(key, n)
        ) w
    ), over as materialized ( -- what the claim takes beyond the turns that the keys have
      select greatest(lane_shares.wanted - sum(o.due), 0)::integer as jobs, sum(o.weight)::integer as weights from own o
    ), part as materialized (
      select o.n, o.due, o.weight, v.jobs > 0 and turns_at_once = 'all' as laps,
          case
            when v.jobs = 0 or turns_at_once = 'one' then 0
            when turns_at_once = 'all' then v.jobs / v.weights
            else ceil(lane_shares.wanted::float8 / v.weights)::integer - 1
          end * o.weight as more,
          least(greatest(v.jobs % v.weights - (sum(o.weight) over (order by o.n) - o.weight), 0), o.weight)::integer as begun
        from own o
        cross join over v
    )
    select array_agg(p.due + p.more + case when p.laps then p.begun else 0 end order by p.n), array_agg(p.due order by p.n),
        array_agg(case when not p.laps then 0 when p.begun > 0 then p.weight - p.begun end order by p.n)
      from part p;
end $$;

-- lane_note is for a queue that has got a key_limit: it makes the lanes hold what was claimed before. Each call looks at leases of
-- 1,000 jobs, and returns whether all of them are noted. Needs lane_pkey, lease_queue_idx or lease_pkey, and run_id_idx only.
create function jobq.lane_note(of_queue text) returns boolean
  language plpgsql
  as $$
declare
  jobs_max constant integer := 1000;
  begins bigint := (select l.unheld from jobq.lane l where l.queue = of_queue and l.key = '');
  ends bigint;
begin
  if begins is null then
    return true;
  end if;
  with batch as materialized (
    select s.id, s.job_ids, s.ended_slots
      from (
        select l.id, l.job_ids, l.ended_slots, sum(cardinality(l.job_ids)) over (order by l.id) - cardinality(l.job_ids) as before
          from (select x.id, x.job_ids, x.ended_slots from jobq.lease x where x.queue = of_queue and x.id > begins order by x.id limit jobs_max) l
      ) s
      where s.before < jobs_max
  ), runs as materialized (
    select r.partition_key as key, s.id as lease, j.slot::smallint as slot
      from batch s
      cross join lateral unnest(s.job_ids) with ordinality as j(id, slot)
      cross join lateral (select x.partition_key from jobq.run x where x.id = j.id and x.lease_id = s.id limit 1) r
      where j.slot <> all(s.ended_slots) and r.partition_key is not null
  ), noted as (
    insert into jobq.lane as l (queue, key, held_leases, held_slots)
      select of_queue, r.key, array_agg(r.lease), array_agg(r.slot) from runs r group by r.key
      on conflict on constraint lane_pkey do update
        set held_leases = l.held_leases || excluded.held_leases, held_slots = l.held_slots || excluded.held_slots
  )
  select max(s.id) into ends from batch s;
  if not exists (select from jobq.lease x where x.queue = of_queue and x.id > ends) then
    ends := null;
  end if;
  update jobq.lane l set unheld = ends where l.queue = of_queue and l.key = '';
  return ends is null;
end $$;

-- rate_again_at is when a claim looks again at a key whose rate is used up until ready_at: when its next job may start. At a fast
-- rate it is later, so that there are fewer claims: when half of the burst may start, or as many jobs as start in 10 ms, whichever
-- are fewer.
create function jobq.rate_again_at(ready_at timestamptz, step_us bigint, burst integer) returns timestamptz
  language sql stable parallel safe
  return ready_at - (burst - greatest(least(burst / 2, 10000 / step_us), 1)) * step_us * interval '1 us';

-- lane_due makes lanes ready whose throttling is over, and returns how many: up to lanes_max whose time has
-- come, and as many whose time is further ahead than it may be, since the clock was set back (rate_ready_at). step_us and burst are of the queue's rate of its keys now, 0 for no rate. Lanes that were throttled
-- by another rate become ready too, lanes_max of slower ones and lanes_max of faster ones; their next claim
-- counts what they have used by the new rate. It also deletes up to lanes_max lanes of which nothing waits,
-- nothing runs, and nothing of the rate is used.
-- The caller has the queue's turn. Needs lane_throttled_idx and lane_spent_idx only.
create function jobq.lane_due(of_queue text, step_us bigint, burst integer, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  at constant timestamptz := clock_timestamp();
  due integer;
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), throttled_until = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst and x.throttled_until <= at
        order by x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and x.rate_step_us = lane_due.step_us and x.rate_burst = lane_due.burst
          and x.throttled_until > at + interval '10 s' + 2 * lane_due.burst * lane_due.step_us * interval '1 us'
        order by x.throttled_until desc limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) < (lane_due.step_us, lane_due.burst) and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max)
      || array(select x.ctid from jobq.lane x
        where x.queue = of_queue and (x.rate_step_us, x.rate_burst) > (lane_due.step_us, lane_due.burst) and x.throttled_until is not null
        order by x.rate_step_us, x.rate_burst, x.throttled_until limit lanes_max));
  get diagnostics due = row_count;
  delete from jobq.lane l
    where l.ctid = any(array(
      select x.ctid from jobq.lane x
        where x.queue = of_queue and x.turn is null and x.full_limit is null and x.throttled_until is null and x.held_leases = '{}'
          and x.rate_ready_at <= case when lane_due.step_us > 0 then at else 'infinity' end
        order by x.rate_ready_at limit lanes_max));
  return due;
end $$;

-- group_turn_first is the first turn that a group has given (key_group): those before it are numbers of lane_turn_seq.
create function jobq.group_turn_first() returns bigint
  language sql immutable parallel safe
  return 4503599627370496; -- 2^52

-- group_turn is the turn of a lane among those of all groups.
create function jobq.group_turn(turn bigint) returns bigint
  language sql immutable parallel safe
  return (turn - jobq.group_turn_first()) >> 20;

-- lane_group gives the lanes that became ready since the last claim a turn of their group (key_group): up to lanes_max of them, in
-- the order in which they became ready. It returns their keys. With weighted, some keys have weights: the turn of such a key is as
-- many jobs long.
--
-- A lane of which no job waits, as is usual after the end of a job, takes no turn from its group: it is due 0 jobs. The last 20
-- bits of a turn are those of the number that the lane had before, so that two lanes hardly ever have the same turn.
-- The caller has the queue's turn. Needs lane_pkey, lane_turn_idx, pending_claim_idx, key_group_pkey and key_weight_pkey only.
create function jobq.lane_group(of_queue text, separator text, weighted boolean, lanes_max integer) returns text[]
  language plpgsql
  as $$
declare
  clock bigint := (select x.group_clock from jobq.lane x where x.queue = of_queue and x.key = '');
  grouped text[];
begin
  if clock is null then
    clock := 0;
    update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '';
  end if;
  with ready as materialized (
    select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
      from jobq.lane x
      where x.queue = of_queue and x.turn is not null and x.turn < jobq.group_turn_first()
      order by x.turn
      limit lanes_max
  ), own as materialized (
    select r.key, r.turn, r.name, case when f.is_waiting then least(r.due, w.weight) else 0 end as jobs
      from ready r
      cross join lateral (
        select exists (
          select from jobq.pending p where p.queue = of_queue and p.partition_key = r.key and p.position is not null order by p.priority, p.position limit 1) as is_waiting
      ) f
      cross join lateral (
        select coalesce(case when weighted then (select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = r.key limit 1) end, 1)::integer as weight
      ) w
  ), placed as materialized (
    select o.key, o.turn, o.name, o.jobs, sum(o.jobs) over (partition by o.name order by o.turn) - o.jobs as before from own o
  ), began as materialized (
    select g.name, g.jobs,
        greatest((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name limit 1), clock) as turn,
        coalesce(case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
      from (select p.name, sum(p.jobs) as jobs from placed p group by p.name) g
  ), noted as (
    insert into jobq.key_group (queue, name, next_turn)
      select of_queue, b.name, b.turn + b.jobs / b.weight from began b
      on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn
  ), turned as (
    insert into jobq.lane as l (queue, key, turn, due)
      select of_queue, p.key, jobq.group_turn_first() + (floor(b.turn + p.before / b.weight)::bigint << 20) + (p.turn & 1048575), case when p.jobs = 0 then 0 end
        from placed p join began b on b.name = p.name
      on conflict on constraint lane_pkey do update set turn = excluded.turn, due = coalesce(excluded.due, l.due)
      returning l.key
  )
  select coalesce(array_agg(t.key), '{}') into grouped from turned t;
  return grouped;
end $$;

-- lane_ungroup is for a queue that has no key_separator any more: lanes get turns of lane_turn_seq again, and groups are deleted,
-- up to lanes_max of each with each call. It returns the greater of the two numbers. The caller has the queue's turn. Needs
-- lane_pkey, lane_turn_idx and key_group_pkey only.
create function jobq.lane_ungroup(of_queue text, lanes_max integer) returns integer
  language plpgsql
  as $$
declare
  lanes integer;
  groups integer;
begin
  insert into jobq.lane (queue, key, turn)
    select of_queue, r.key, nextval('jobq.lane_turn_seq')
      from (
        select x.key from jobq.lane x
          where x.queue = of_queue and x.turn is not null and x.turn >= jobq.group_turn_first() order by x.turn limit lanes_max
      ) r
    on conflict on constraint lane_pkey do update set turn = excluded.turn;
  get diagnostics lanes = row_count;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = of_queue order by x.name limit lanes_max));
  get diagnostics groups = row_count;
  if lanes < lanes_max and groups < lanes_max then
    update jobq.lane x set group_clock = null where x.queue = of_queue and x.key = '';
  end if;
  return greatest(lanes, groups);
end $$;

-- lane_group_shares returns how many jobs a claim takes of each group, where the queue has a key_separator.
--
-- It looks at up to lanes_max lanes with a turn after after_turn and up to to_turn, and at up to lanes_max lanes of the keys in
-- new whose turn is before these. keys and turns are those lanes, in their order. room is how many jobs the claim may take. With
-- with_plain, jobs without a key count as one more group, and wanted is what they leave of room.
--
--   names, group_weights  the groups
--   jobs                  how many to take of each group
--   dues, weights         of the lanes of each group: the sum of the jobs that are due, and the sum of the weights
--
-- Each group gives the jobs that come before one and the same turn (level), one job to a turn: just those that claims of one job
-- each would take. If there are more lanes than it looks at, the level is at most the turn after the last lane.
-- Needs lane_turn_idx, key_group_pkey and key_weight_pkey only.
--
-- Example: 8 jobs are wanted, and the lanes are a/1, a/2 and a/3 with the turns 1, 2 and 3, and b/1 with 1. Both groups give the
-- jobs of the turns 1 to 4: a/1 gives 2, a/2 and a/3 one each, and b/1 gives 4. Of 4 jobs it would be one of a/1, one of a/2, and
-- 2 of b/1.
create function jobq.lane_group_shares(
  of_queue text, separator text, weighted boolean, new text[], after_turn bigint, to_turn bigint, lanes_max integer, room integer, with_plain boolean
) returns table (
  names text[], group_weights float8[], jobs integer[], dues integer[], weights integer[], wanted integer, keys text[], turns bigint[]
)
  language plpgsql
  as $$
begin
  return query
    with looked as materialized (
      select x.key, x.turn, x.due, split_part(x.key, separator, 1) as name
        from jobq.lane x
        where x.queue = of_queue and x.turn is not null and x.turn > after_turn and x.turn <= lane_group_shares.to_turn
        order by x.turn
        fetch first (lanes_max) rows with ties -- of the same turn, which a pass could end between
    ), each_lane as materialized (
      select l.key, l.turn, l.due, l.name from looked l
      union all
      (select y.key, y.turn, y.due, split_part(y.key, separator, 1)
        from unnest(lane_group_shares.new) as k(key)
        cross join lateral (select x.key, x.turn, x.due from jobq.lane x where x.queue = of_queue and x.key = k.key limit 1) y
        where y.turn <= after_turn
        order by y.turn
        limit lanes_max)
    ), own as materialized (
      select l.key, l.name, l.turn, w.weight, least(l.due, w.weight) as due
        from each_lane l
        cross join lateral (
          select coalesce(case when weighted then (select x.weight from jobq.key_weight x where x.queue = of_queue and x.key = l.key limit 1) end, 1)::integer as weight
        ) w
    ), each as materialized (
      select g.name, g.first, g.last, g.dues, g.weights,
          coalesce(case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8 as weight
        from (
          select o.name, jobq.group_turn(min(o.turn)) as first, jobq.group_turn(max(o.turn)) as last,
              sum(o.due)::integer as dues, sum(o.weight)::integer as weights
            from own o group by o.name
        ) g
    ), part as materialized (
      select (lane_group_shares.room - case
          when with_plain and count(*) > 0 then floor(lane_group_shares.room / (sum(e.weight) + 1) + random()) else 0 end)::integer as wanted
        from each e
    ), level as materialized ( -- over the first groups, for each number of them; the least one is that of those that it reaches
      select least(min(f.level), case when (select count(*) from looked) >= lanes_max then max(f.last) + 1 end) as turn
        from (
          select e.last,
              (p.wanted + sum(e.weight * e.first) over (order by e.first, e.name)) / sum(e.weight) over (order by e.first, e.name) as level
            from each e cross join part p
        ) f
    ), share as materialized (
      select e.*, ceil(e.weight * greatest(v.turn - e.first, 0) - 0.000001)::integer as jobs -- without the last digits of the float
        from each e cross join level v
    )
    select coalesce(array_agg(s.name), '{}'), coalesce(array_agg(s.weight), '{}'), coalesce(array_agg(s.jobs), '{}'),
        coalesce(array_agg(s.dues), '{}'), coalesce(array_agg(s.weights), '{}'), (select p.wanted from part p),
        (select coalesce(array_agg(o.key order by o.turn), '{}') from own o), (select coalesce(array_agg(o.turn order by o.turn), '{}') from own o)
      from share s;
end $$;

-- lane_group_charge moves the next turns of groups after a claim: later by the jobs that their lanes gave (taken) beyond their
-- turns (dues), earlier by the jobs that they did not give. A lane that keeps its turn for the rest of its jobs, now or as
-- due_turn, is left out. It also sets the queue's clock, and deletes up to 100 groups whose next turn is more than 1,000 turns
-- before the clock.
-- The caller has the queue's turn. Needs lane_pkey, key_group_pkey, key_group_next_turn_idx and key_weight_pkey only.
create function jobq.lane_group_charge(
  of_queue text, separator text, weighted boolean, clock bigint, keys text[], turns bigint[], dues integer[], taken integer[]
) returns void
  language plpgsql
  as $$
declare
  kept_for constant integer := 1000; -- turns of the clock
begin
  update jobq.lane x set group_clock = clock where x.queue = of_queue and x.key = '' and x.group_clock < clock;
  insert into jobq.key_group (queue, name, next_turn)
    select of_queue, g.name,
        coalesce((select x.next_turn from jobq.key_group x where x.queue = of_queue and x.name = g.name limit 1), clock)
          + g.jobs / coalesce(case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = g.name limit 1) end, 1)::float8
      from (
        select split_part(k.key, separator, 1) as name, sum(k.taken - k.due) as jobs
          from unnest(lane_group_charge.keys, lane_group_charge.turns, lane_group_charge.dues, lane_group_charge.taken) as k(key, turn, due, taken)
          where (select x.turn = k.turn or x.due_turn = k.turn from jobq.lane x where x.queue = of_queue and x.key = k.key limit 1) is not true
          group by 1
      ) g
      where g.jobs <> 0
    on conflict on constraint key_group_pkey do update set next_turn = excluded.next_turn;
  delete from jobq.key_group g
    where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = of_queue and x.next_turn < clock - kept_for order by x.next_turn limit 100));
end $$;

-- lane_unfill makes lanes ready that were full with another limit than key_limit, which is null for no limit: up to lanes_max with
-- a lower limit, and as many with a higher one. lanes is how many became ready, and more says whether others are left. The caller
-- has the queue's turn. Needs lane_full_idx only.
create function jobq.lane_unfill(of_queue text, key_limit integer, lanes_max integer, out lanes integer, out more boolean)
  language plpgsql
  as $$
declare
  new_limit constant integer := coalesce(key_limit, 1000000);
begin
  update jobq.lane l
    set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
    where l.ctid = any(
      array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit order by x.full_limit limit lanes_max)
      || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit order by x.full_limit limit lanes_max));
  get diagnostics lanes = row_count;
  more := exists (select from jobq.lane x where x.queue = of_queue and x.full_limit < new_limit order by x.full_limit limit 1)
    or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit > new_limit order by x.full_limit limit 1);
end $$;

-- lane_look_again makes up to 10 full lanes ready at which no claim has looked for a minute, at most once a
-- second, in case a hint is missing. A look that lies ahead is of a clock that was set back, and counts as long ago.
-- The caller has the queue's turn. Needs lane_pkey and lane_full_idx only.
create function jobq.lane_look_again(of_queue text, key_limit integer) returns void
  language plpgsql
  as $$
begin
  update jobq.lane l
    set looked_at = statement_timestamp()
    where l.queue = of_queue and l.key = ''
      and (coalesce(l.looked_at, '-infinity') < statement_timestamp() - interval '1 s' or l.looked_at > statement_timestamp() + interval '1 s')
      and (exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 1)
        or exists (select from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 1));
  if found then
    update jobq.lane l
      set turn = coalesce(l.due_turn, nextval('jobq.lane_turn_seq')), full_limit = null
      where l.ctid = any(
        array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at < statement_timestamp() - interval '1 minute' order by x.looked_at limit 10)
        || array(select x.ctid from jobq.lane x where x.queue = of_queue and x.full_limit = key_limit
          and x.looked_at > statement_timestamp() + interval '1 minute' order by x.looked_at desc limit 10));
  end if;
end $$;

-- lane_claim_sets locks jobs for lane_claim where keys have no limit, no rate and no groups (lane_pick): from up to lanes_max
-- lanes at a time until it has found a job, and from at most 1,000 lanes in all. It ends before the first lane that has jobs of
-- other kinds within its share, or in whose line a claim has stopped (looks), and others_follow says so.
--
--   fresh       keys that hints have told of and that have no lane. Such a key gets a lane only if the claim leaves jobs of it
--   hints       how many hints the claim has taken until now, up to the id last_hint. In a new pass (from_turn 0) it takes
--               more if lanes and fresh keys are too few, up to 1,000 in all
--   hints_left  there may be more hints
--   again       another claim would find more
--   readied     keys whose lanes became ready, or are new
--
-- looked is the turn of the last lane that it has looked at, and unserved the turn of the last lane that gave nothing.
-- Needs lane_pkey, lane_turn_idx, lane_hint_pkey, paused_key_pkey, key_weight_pkey and pending_claim_idx only.
create function jobq.lane_claim_sets(
  of_queue text, kinds text[], from_turn bigint, lanes_max integer, weighted boolean, shared boolean, fresh text[], hints integer, last_hint bigint, hints_left boolean,
  inout wanted integer, inout to_turn bigint, inout again boolean, inout readied text[],
  out looked bigint, out unserved bigint, out ids bigint[], out places tid[], out others_follow boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  hints_max constant integer := 1000;
  lanes_left integer := 1000;
  hints_taken record;
  hints_asked integer;
  fresh_turns bigint[] := '{}'; -- which these keys would have
  fresh_seen integer := 0; -- of these
  visited integer := 0; -- lanes, and keys without one
  lanes integer; -- to look at now
  lane_places tid[];
  keys text[]; -- to take from, in the order of their turns
  turns bigint[];
  laned integer; -- so many of these have a lane
  batch record;
  picked record;
  share integer;
  split_shares integer[]; -- of lane_shares
  split_dues integer[];
  split_lefts integer[];
  n_begun integer; -- the place among keys of one that has begun a turn, and keeps it
  due_key text; -- which has begun a turn, and keeps it
  due_left integer;
  emptied text[] := '{}'; -- keys that have nothing left
  served text[] := '{}'; -- keys without a lane that get one at the back
  served_lanes tid[] := '{}'; -- that go to the back
  kept text[] := '{}'; -- keys without a lane that get one with these turns
  kept_turns bigint[] := '{}';
  kept_places tid[] := '{}'; -- of lanes that keep their turns, which they have not begun
  in_order boolean;
begin
  looked := from_turn;
  unserved := from_turn;
  ids := '{}';
  places := '{}';
  others_follow := false;
  while not others_follow and wanted > 0 and lanes_left > 0 loop
    -- Each gives a job, but for those that are empty; and the others as many as those before.
    lanes := least(case when ids = '{}' then lanes_max else lanes_left end,
      greatest(case when ids = '{}' then wanted else ceil(wanted::float8 * visited / cardinality(ids)) end, 10))::integer;
    lane_places := case
      when shared then array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn
        order by x.turn limit lanes for update skip locked)
      else array(select x.ctid from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn
        order by x.turn limit lanes)
      end;
    select coalesce(array_agg(x.key order by x.turn), '{}') as keys, coalesce(array_agg(x.turn order by x.turn), '{}') as turns,
        coalesce(array_agg(x.ctid order by x.turn), '{}') as lane_places, min(x.turn) filter (where x.looks <> '{}') as walked
      into batch
      from (select y.key, y.turn, y.looks, y.ctid from jobq.lane y where y.ctid = any(lane_places) offset 0) x -- so that no index is read for what is asked of them
      where x.turn is not null;
    keys := batch.keys;
    turns := batch.turns;
    laned := cardinality(keys);
    while laned + cardinality(fresh) - fresh_seen < lanes and from_turn = 0 and hints_left and hints < hints_max loop
      hints_asked := least(greatest(lanes - laned - cardinality(fresh) + fresh_seen, lanes_max), hints_max - hints);
      select e.hints, e.last_hint, e.readied, e.fresh into hints_taken from jobq.lane_hints_take(of_queue, last_hint, hints_asked, true, shared) e;
      last_hint := coalesce(hints_taken.last_hint, last_hint);
      hints_left := hints_taken.hints = hints_asked;
      hints := hints + hints_taken.hints;
      readied := readied || hints_taken.readied;
      -- What this claim has found empty before is for the next one: it would find the jobs again that it has locked.
      served := served || array(select k from unnest(hints_taken.fresh) k intersect select e from unnest(emptied) e except select s from unnest(served) s);
      fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f from unnest(fresh || served || kept || emptied) f);
    end loop;
    if cardinality(fresh_turns) < cardinality(fresh) then
      fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq') from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
      to_turn := fresh_turns[cardinality(fresh)];
    end if;
    keys := keys || fresh[fresh_seen + 1 : fresh_seen + lanes - laned];
    turns := turns || fresh_turns[fresh_seen + 1 : fresh_seen + lanes - laned];
    exit when keys = '{}';
    share := ceil(wanted::float8 / cardinality(keys));
    if weighted then
      select s.shares, s.dues, s.lefts into split_shares, split_dues, split_lefts
        from jobq.lane_shares(of_queue, keys, wanted,
          case when cardinality(keys) = lanes or looked > from_turn then 'many' when from_turn = 0 then 'all' else 'one' end) s;
    end if;
    if batch.walked is not null then -- where claims have stopped in the line of a key, it takes a look of its own
      keys := keys[1 : array_position(turns, batch.walked) - 1];
    end if;
    select p.ids, p.places, p.visited, p.mixed, p.served, p.emptied, p.unserved, p.last_taken into picked
      from jobq.lane_pick(of_queue, keys, kinds,
        case when weighted then split_shares[1 : cardinality(keys)] else array_fill(share, array[cardinality(keys)]) end, wanted) p;
    if weighted then
      if cardinality(picked.ids) = wanted and split_lefts[picked.visited] = 0 then -- it may have given less than its share
        split_lefts[picked.visited] := greatest(split_dues[picked.visited] - picked.last_taken, 0);
      end if;
      kept := kept || array(select keys[n] from unnest(picked.served) n where n > laned and split_lefts[n] is distinct from 0);
      kept_turns := kept_turns || array(select turns[n] from unnest(picked.served) n where n > laned and split_lefts[n] is distinct from 0);
      kept_places := kept_places || array(select batch.lane_places[n] from unnest(picked.served) n where n <= laned and split_lefts[n] is null);
      n_begun := (select n from unnest(picked.served) n where split_lefts[n] > 0 limit 1);
      if n_begun is not null then
        due_key := keys[n_begun];
        due_left := split_lefts[n_begun];
      end if;
      again := again or picked.served <> '{}';
      picked.served := array(select n from unnest(picked.served) n where split_lefts[n] = 0);
    end if;
    ids := ids || picked.ids;
    places := places || picked.places;
    served := served || array(select keys[n] from unnest(picked.served) n where n > laned);
    served_lanes := served_lanes || array(select batch.lane_places[n] from unnest(picked.served) n where n <= laned);
    emptied := emptied || array(select keys[n] from unnest(picked.emptied) n);
    -- Before more hints are taken: one that has come since would find the lane ready, and that would be all.
    delete from jobq.lane x where x.ctid = any(array(select batch.lane_places[n] from unnest(picked.emptied) n where n <= laned));
    kept := kept || array(select keys[n] from unnest(picked.unserved) n where n > laned);
    kept_turns := kept_turns || array(select turns[n] from unnest(picked.unserved) n where n > laned);
    unserved := greatest(unserved, (select turns[max(n)] from unnest(picked.unserved) n));
    fresh_seen := fresh_seen + greatest(picked.visited - laned, 0);
    looked := coalesce(turns[picked.visited], looked);
    wanted := wanted - cardinality(picked.ids);
    lanes_left := lanes_left - cardinality(keys);
    visited := visited + picked.visited;
    others_follow := picked.visited = cardinality(keys) and cardinality(keys) < cardinality(turns) or picked.mixed;
  end loop;
  if from_turn = 0 and cardinality(fresh_turns) < cardinality(fresh) then
    fresh_turns := fresh_turns || array(select nextval('jobq.lane_turn_seq') from generate_series(cardinality(fresh_turns) + 1, cardinality(fresh)));
    to_turn := fresh_turns[cardinality(fresh)];
  end if;
  kept := kept || fresh[fresh_seen + 1 : cardinality(fresh)];
  kept_turns := kept_turns || fresh_turns[fresh_seen + 1 : cardinality(fresh)];
  again := again or served <> '{}' or served_lanes <> '{}' or hints_left;
  readied := served || kept || readied;
  if served_lanes <> '{}' then
    in_order := weighted and cardinality(served_lanes) <= lanes_max; -- some may have had more turns than those behind them
    if in_order then
      turns := array(select nextval('jobq.lane_turn_seq') from generate_series(1, cardinality(served_lanes)));
    end if;
    update jobq.lane x
      set turn = case when in_order then turns[array_position(served_lanes, x.ctid)] else nextval('jobq.lane_turn_seq') end,
        due = null, due_turn = null
      where x.ctid = any(served_lanes);
  end if;
  if kept_places <> '{}' then
    update jobq.lane x set due = null, due_turn = null where x.ctid = any(kept_places) and x.due is not null;
  end if;
  if served <> '{}' or kept <> '{}' then
    insert into jobq.lane (queue, key, turn)
      select of_queue, k.key, k.turn from unnest(kept, kept_turns) as k(key, turn)
      union all
      select of_queue, s.key, nextval('jobq.lane_turn_seq') from unnest(served) as s(key);
  end if;
  if due_key is not null then
    update jobq.lane x set due = due_left, due_turn = null where x.queue = of_queue and x.key = due_key;
  end if;
end $$;

-- lane_walk locks up to jobs_max jobs of a key, of these kinds, for lane_claim_each. It reads at most 1,000 jobs of the key's
-- line. If it has read so many and locked fewer than jobs_max, stopped is true, and the new looks has the place: later claims of
-- the same kinds, which kinds_id identifies, go on from there. At the end of the line they begin anew if a hint has come since
-- they began. again says that another claim may find more. Needs pending_claim_idx only.
create function jobq.lane_walk(
  of_queue text, of_key text, kinds text[], kinds_id text, hinted bigint, jobs_max integer,
  inout looks jsonb, out ids bigint[], out places tid[], out stopped boolean, out again boolean
)
  language plpgsql
  as $$
declare
  walk_max constant integer := 1000; -- jobs to look at
  looks_max constant integer := 8; -- sets of kinds that a lane notes a place for
  begins constant jsonb := coalesce(looks -> kinds_id, jsonb_build_array(-32769, 0, hinted)); -- priority, position, and the last hint when it began at the head
  stop record;
begin
  stopped := false;
  again := false;
  with found as materialized (
    select c.id, c.place
      from (
        select p.ctid as place, p.kind
          from jobq.pending p
          where p.queue = of_queue and p.partition_key = of_key and p.position is not null
            and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
          order by p.priority, p.position
          limit walk_max
      ) w
      cross join lateral (
        select x.id, x.ctid as place from jobq.pending x
          where x.ctid = w.place and x.queue = of_queue and x.partition_key = of_key and x.position is not null and x.kind = any(kinds)
          for update skip locked
      ) c
      where w.kind = any(kinds)
      limit jobs_max
  )
  select array(select f.id from found f), array(select f.place from found f) into ids, places;
  if cardinality(ids) = jobs_max then
    return;
  end if;
  select p.priority, p.position into stop
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
      and (p.priority, p.position) > ((begins ->> 0)::integer, (begins ->> 1)::bigint)
    order by p.priority, p.position
    offset walk_max - 1 limit 1;
  if stop.position is not null then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(stop.priority, stop.position, begins -> 2));
    stopped := true;
    again := true;
  elsif looks ? kinds_id and hinted > (begins ->> 2)::bigint then
    looks := looks || jsonb_build_object(kinds_id, jsonb_build_array(-32769, 0, hinted));
    again := true;
  else
    looks := looks - kinds_id;
  end if;
  if (select count(*) from jsonb_object_keys(looks)) > looks_max then
    looks := jsonb_build_object(kinds_id, looks -> kinds_id);
  end if;
end $$;

-- lane_claim_each locks jobs for lane_claim from one lane after the other: from up to lanes_max lanes, after the turn looked. It
-- is for queues whose keys have a limit, a rate, an order or groups, and for lanes that have jobs of other kinds
-- (lane_claim_sets).
--
-- How much it takes of a key:
-- - An equal part of what is wanted, with weights so many times as much. all_weights and all_dues are the sums over the lanes that
--   share it; lane_claim explains turns_at_once.
-- - With groups, what lane_group_shares says. new are the keys that have just got a turn of their group; wanted is then the room
--   that the claim has, and with with_plain it shares that with jobs without a key.
-- - With a limit, at most what the limit leaves beside the jobs that run. The leases say which ones of held_leases and held_slots
--   still run.
-- - With a rate, at most what the rate leaves at the time claimed. The lane's rate_ready_at moves on. A throttled lane has no
--   turn, so it costs claims nothing until lane_due finds that its time has come. LaneMore says in how many milliseconds the next
--   lane is due, for the worker's timer.
-- - With an order, the next job of the key or none (lane_next_lock). That job is noted as the key's head. A key whose head waits
--   for its retry is handled as a full one.
--
-- All jobs get the same lease, with the slots after slots_used; with each_job, each job gets a lease of its own. again says that
-- another claim would find more. looked is the turn of the last lane that it has looked at, and unserved the turn of the last lane
-- that gave nothing. With groups it looks at lanes_max lanes after looked, and at as many of the keys in new before it. Then the
-- new looked is the turn before the first lane that it has not looked at, and unserved counts only lanes before that.
-- Needs lane_pkey, lane_turn_idx, lane_head_pkey, key_weight_pkey, key_group_pkey, key_group_next_turn_idx, pending_pkey,
-- pending_claim_idx, run_id_idx and lease_pkey only.
create function jobq.lane_claim_each(
  of_queue text, q jobq.queue, kinds text[], from_turn bigint, to_turn bigint, lanes_max integer, lanes integer, shared boolean,
  weighted boolean, turns_at_once text, all_weights integer, all_dues integer, new text[], with_plain boolean,
  lease bigint, slots_used integer, each_job boolean, claimed timestamptz,
  inout wanted integer, inout looked bigint, inout unserved bigint,
  out ids bigint[], out places tid[], out leases bigint[], out slots smallint[], out again boolean
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  grouped constant boolean := q.key_separator is not null;
  key_limit constant integer := q.key_limit;
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period); -- of the rate of each key, in microseconds; null without one
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  kinds_id constant text := hashtextextended(kinds::text, 0)::text;
  walks_left integer := 10; -- lanes of which to look at a thousand jobs
  unlocked text[]; -- keys of lanes that no other claim of a shared turn has locked
  lane record;
  walk record;
  share integer;
  own_weight integer;
  own_due integer;
  beyond boolean := false; -- it takes all turns that lanes have, and more
  begun integer; -- so many jobs of the turn after it are in the share
  left_due integer := 0; -- of the lane's turn: 0 when it goes to the back, null when its next one has not begun
  free integer; -- what the limit leaves of the lane
  rate_free integer; -- what the rate leaves of it
  found_ids bigint[];
  found_places tid[];
  taken integer;
  new_leases bigint[];
  new_slots smallint[];
  group_from constant bigint := looked;
  group_clock bigint;
  group_names text[]; -- of lane_group_shares
  group_own_weights float8[];
  group_jobs integer[];
  group_dues integer[];
  group_weights integer[];
  group_keys text[]; -- the lanes to look at: for what their groups are to give, and then for what that leaves
  group_turns bigint[];
  n_group integer; -- of these groups, that of the lane
  unserved_turns bigint[] := '{}';
  unseen bigint; -- the first turn of those that it has not looked at
  given_keys text[] := '{}'; -- lanes that were looked at, with groups
  given_turns bigint[] := '{}';
  given_dues integer[] := '{}';
  given integer[] := '{}';
begin
  ids := '{}';
  places := '{}';
  leases := '{}';
  slots := '{}';
  again := false;
  if grouped then
    select x.group_clock into group_clock from jobq.lane x where x.queue = of_queue and x.key = '';
    select s.names, s.group_weights, s.jobs, s.dues, s.weights, s.wanted, s.keys, s.turns
      into group_names, group_own_weights, group_jobs, group_dues, group_weights, wanted, group_keys, group_turns
      from jobq.lane_group_shares(of_queue, q.key_separator, weighted, new, looked, to_turn, lanes_max, wanted, with_plain) s;
    if wanted = 0 then
      return;
    end if;
  end if;
  unlocked := array(select x.key from jobq.lane x where shared and x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn
    order by x.turn limit lanes_max for update skip locked);
  for lane in
    select x.key, x.turn, x.held_leases, x.held_slots, cardinality(x.held_leases) as held_before, x.looks, x.looks as looks_before, x.hinted,
        x.rate_ready_at, x.rate_step_us, x.due, x.n,
        case when weighted then (select w.weight from jobq.key_weight w where w.queue = of_queue and w.key = x.key limit 1) end as weight
      from (
        (select y.*, null::bigint as n from jobq.lane y
          where not grouped and y.queue = of_queue and y.turn is not null and y.turn > looked and y.turn <= to_turn and (not shared or y.key = any(unlocked))
          order by y.turn
          limit lanes_max)
        union all
        (select y.*, k.n from unnest(group_keys || group_keys) with ordinality as k(key, n)
          cross join lateral (select l.* from jobq.lane l where l.queue = of_queue and l.key = k.key limit 1) y
          where grouped
          order by k.n)
      ) x
  loop
    exit when wanted = 0 or walks_left = 0;
    looked := lane.turn;
    if grouped then
      n_group := array_position(group_names, split_part(lane.key, q.key_separator, 1));
      continue when lane.key = any(given_keys) or group_jobs[n_group] <= 0 and lane.n <= cardinality(group_keys);
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      share := greatest(ceil((group_jobs[n_group] - group_dues[n_group])::float8 / group_weights[n_group]), 0)::integer; -- turns beyond its own
      share := case when group_jobs[n_group] > 0 then least(own_due + own_weight * share, group_jobs[n_group], wanted) else least(own_due, wanted) end;
      share := greatest(share, 1); -- where nothing was due
      left_due := case when share < own_due then own_due - share else (own_weight - (share - own_due) % own_weight) % own_weight end;
    elsif weighted then
      own_weight := coalesce(lane.weight, 1);
      own_due := least(lane.due, own_weight);
      if all_dues is not null then -- and some have come since they were counted
        all_weights := greatest(all_weights, own_weight);
        all_dues := greatest(all_dues, own_due);
      end if;
      beyond := beyond or turns_at_once = 'all' and coalesce(wanted > all_dues, false);
      begun := case when beyond then least(greatest(wanted - all_dues, 0) % all_weights, own_weight) else 0 end;
      share := own_due + begun + own_weight * case
        when coalesce(wanted <= all_dues, true) or turns_at_once = 'one' then 0
        when turns_at_once = 'all' then (wanted - all_dues) / all_weights
        else ceil(wanted::float8 / all_weights)::integer - 1 end;
      share := least(share, wanted);
      left_due := case when beyond then nullif(own_weight - begun, own_weight) else greatest(own_due - share, 0) end;
      all_weights := all_weights - own_weight;
      all_dues := all_dues - own_due;
    else
      share := ceil(wanted::float8 / greatest(lanes, 1));
    end if;
    if key_limit is not null then
      select coalesce(array_agg(u.lease), '{}'), coalesce(array_agg(u.slot), '{}') into lane.held_leases, lane.held_slots
        from (select h.lease, array_agg(distinct h.slot) as slots from unnest(lane.held_leases, lane.held_slots) as h(lease, slot) group by h.lease) g
        cross join lateral (select x.ended_slots from jobq.lease x where x.id = g.lease limit 1) x -- the limit keeps it a lookup
        cross join lateral (select g.lease, s.slot from unnest(g.slots) as s(slot) where s.slot <> all(x.ended_slots)) u;
    else
      lane.held_leases := '{}';
      lane.held_slots := '{}';
    end if;
    free := key_limit - cardinality(lane.held_leases); -- null without a limit
    if free < 0 then -- it was lowered
      free := 0;
    end if;
    if key_step is null then
      lane.rate_ready_at := null; -- an earlier rate's
    else
      lane.rate_ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed), coalesce(lane.rate_step_us, key_step), key_step, key_burst, claimed);
      rate_free := floor(key_burst - extract(epoch from lane.rate_ready_at - claimed) * 1000000 / key_step);
    end if;
    if q.key_order is not null and free > 0 and rate_free is distinct from 0 then
      select t.free, t.ids, t.places into free, found_ids, found_places from jobq.lane_next_lock(of_queue, lane.key, q.key_order, kinds) t;
    else
      select w.ids, w.places, w.looks, w.stopped, w.again into walk
        from jobq.lane_walk(of_queue, lane.key, kinds, kinds_id, lane.hinted, least(share, free, rate_free), lane.looks) w;
      found_ids := walk.ids;
      found_places := walk.places;
      lane.looks := walk.looks;
      again := again or walk.again;
      walks_left := walks_left - walk.stopped::integer;
    end if;
    taken := cardinality(found_ids);
    if grouped and taken > 0 then
      group_clock := greatest(group_clock, jobq.group_turn(lane.turn) + floor((taken - 1) / group_own_weights[n_group])::bigint);
    end if;
    if each_job then
      new_leases := array(select jobq.lease_id_next() from generate_series(1, taken));
      new_slots := array_fill(1::smallint, array[taken]);
    else
      new_leases := array_fill(lease, array[taken]);
      new_slots := array(select (slots_used + cardinality(ids) + i)::smallint from generate_series(1, taken) i);
    end if;
    ids := ids || found_ids;
    places := places || found_places;
    leases := leases || new_leases;
    slots := slots || new_slots;
    if key_limit is not null then
      lane.held_leases := lane.held_leases || new_leases;
      lane.held_slots := lane.held_slots || new_slots;
    end if;
    if q.key_order is not null and taken > 0 then
      insert into jobq.lane_head (queue, key, job_id, lease_id) values (of_queue, lane.key, found_ids[1], new_leases[1])
        on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
    end if;
    if key_step is not null and taken > 0 then
      lane.rate_ready_at := lane.rate_ready_at + taken * key_step * interval '1 us';
      update jobq.lane x set rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst
        where x.queue = of_queue and x.key = lane.key;
    end if;
    if key_step is not null and taken = rate_free and exists ( -- null would not keep it from being asked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null and p.id <> all(found_ids)) then
      update jobq.lane x
        set turn = null, throttled_until = jobq.rate_again_at(lane.rate_ready_at, key_step, key_burst),
          rate_ready_at = lane.rate_ready_at, rate_step_us = key_step, rate_burst = key_burst,
          held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks, -- its turn is kept for it, as that of a full one
          due = case when taken = 0 then lane.due when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = free then
      update jobq.lane x
        set turn = null, full_limit = key_limit, looked_at = clock_timestamp(), held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks,
          due = case when taken = 0 then lane.due when own_due > taken then own_due - taken end,
          due_turn = case when taken = 0 and lane.due is not null or own_due > taken and taken > 0 then lane.turn end
        where x.queue = of_queue and x.key = lane.key;
    elsif taken = share or exists ( -- jobs of other kinds, or that somebody has locked
        select from jobq.pending p where p.queue = of_queue and p.partition_key = lane.key and p.position is not null and p.id <> all(found_ids)) then
      again := again or taken = share;
      if taken > 0 then
        update jobq.lane x
          set turn = case
              when taken = share and left_due is distinct from 0 and (not grouped or taken < own_due) then lane.turn
              when grouped then nextval('jobq.lane_turn_seq') - (1::bigint << 51) -- it gets one of its group before lanes that became ready by a hint
              else nextval('jobq.lane_turn_seq')
            end,
            due = case when left_due > 0 and taken = share then left_due end, due_turn = null,
            held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
          where x.queue = of_queue and x.key = lane.key;
      else
        unserved := lane.turn;
        unserved_turns := unserved_turns || lane.turn;
        if cardinality(lane.held_leases) < lane.held_before or lane.looks <> lane.looks_before then
          update jobq.lane x set held_leases = lane.held_leases, held_slots = lane.held_slots, looks = lane.looks
            where x.queue = of_queue and x.key = lane.key;
        end if;
      end if;
    elsif lane.held_leases = '{}' and (lane.rate_ready_at > claimed) is not true then
      delete from jobq.lane x where x.queue = of_queue and x.key = lane.key;
      if q.key_order is not null then
        -- One that somebody has just edited to run later waits, and keeps its key.
        delete from jobq.lane_head h where h.queue = of_queue and h.key = lane.key
          and not exists (select from jobq.pending p where p.id = h.job_id);
      end if;
    else
      update jobq.lane x set turn = null, due = null, due_turn = null, held_leases = lane.held_leases, held_slots = lane.held_slots, looks = '{}'
        where x.queue = of_queue and x.key = lane.key;
    end if;
    wanted := wanted - taken;
    lanes := lanes - 1;
    if grouped then
      given_keys := given_keys || lane.key;
      given_turns := given_turns || lane.turn;
      given_dues := given_dues || own_due;
      given := given || taken;
      group_jobs[n_group] := group_jobs[n_group] - taken;
      group_dues[n_group] := group_dues[n_group] - own_due;
      group_weights[n_group] := greatest(group_weights[n_group] - own_weight, 1);
    end if;
  end loop;
  if grouped then
    unseen := (select min(u.turn) from unnest(group_keys, group_turns) as u(key, turn) where u.turn > group_from and u.key <> all(given_keys));
    unserved := greatest((select max(b.turn) from unnest(unserved_turns) as b(turn) where b.turn < unseen or unseen is null), from_turn);
    looked := greatest(coalesce(unseen - 1, (select max(u.turn) from unnest(group_turns) as u(turn))), group_from);
    perform jobq.lane_group_charge(of_queue, q.key_separator, weighted, group_clock, given_keys, given_turns, given_dues, given);
  end if;
end $$;

-- lane_claim claims jobs with partition keys, as JobClaim claims jobs without. Both are part of one transaction: queue_admit says
-- how many jobs may start, lane_claim takes its part, and JobClaim gets what is left. lane_claim takes nothing if another claim
-- has the queue's turn.
--
-- It first makes lanes ready (lane_hints_take, lane_unfill, lane_due, lane_look_again). Then it takes jobs: of many lanes with one
-- statement (lane_claim_sets), or of one lane after the other (lane_claim_each), which costs some ten times as much for each job.
--
-- Keys take turns. Each ready lane gives the same share of the claim, in the order of turn, and then goes to the back. Within a
-- key, jobs go by priority and position.
--
-- Example: it may take 4 jobs. Many jobs wait with the key a, one with the key b, and others without a key. These are 3 lanes, so
-- jobs without a key get 1 or 2 of the 4: by lot, since 4 / 3 is not whole. If lane_claim takes 3, they are 2 of a and 1 of b.
--
-- A lane that gives nothing, because its jobs are of other kinds or locked, keeps its turn: otherwise claims for some kinds would
-- put the keys of others back again and again. So that such lanes do not hide the lanes after them, a worker looks at lanes in
-- passes. Each claim of a pass begins after the last lane that gave nothing (from_turn). A pass ends with the turn that was the
-- last one when it began (to_turn); lanes that were served go behind it. Both are 0 for a new pass.
--
-- A weight (key_weight) makes the turn of a key so many jobs long. A lane that has given fewer keeps its turn, and the rest is
-- due. If the key becomes full before that, it gets the turn back when it is ready again. turns_at_once says how many turns of
-- each lane a claim takes:
--
--   all   it looks at all ready lanes: one round of turns after the other, the last one as far as it goes. So the size of claims makes no difference
--   one   it looks at the last lanes of a pass: the next pass takes more
--   many  there are more lanes than it looks at: as many turns as it needs for its jobs, and the last lane may give less
--
-- With a key_separator, lanes are in the order of what their groups have had (key_group). Lanes that became ready since the last
-- claim, or since the setting came, first get their turns of the group, 1,000 with each claim.
--
-- A claim costs as much as the lanes that it takes from, however many are full or empty: those are not looked at again until there
-- is a hint (lane_hint). A lane is deleted when nothing of its key waits or runs. The lane of a paused key is neither ready nor
-- full, so no claim looks at it until the key is resumed. Lanes hold leases and slots only while the queue has a limit of its
-- keys. When it gets one, lane_note comes first, and nothing is taken until it has ended.
--
-- lane_claim moves the jobs to run itself if it has looked at lanes one after the other, or if each job gets a lease of its own.
-- Otherwise it has only locked them, and LaneTake moves them: their places are in the setting jobq_claim.places. To return a
-- thousand rows from a function costs twice as much.
--
-- The setting jobq_claim.lanes says whether another claim of this worker would find more, and where its pass goes on (LaneMore).
-- If a lane that hints made ready still is, other workers may have slots for it, or run its kinds: lane_claim wakes those that are
-- idle. It also does so if the end of a job has made room in a key that is throttled now: workers that did not see it then must
-- learn when the key may go on.
--
-- Only the claim that has the queue's turn writes lanes and takes hints, so no statement here waits for another claim. Claims that
-- share the turn (queue_admit) lock the lanes that they take from, skip lanes that others have locked, and leave the hints of
-- those lanes. Only one of these claims at a time takes hints, since a key without a lane cannot be locked. Each of them says that
-- another claim would find more. If one has not found all that it was to take, the worker's next claim has the turn alone, and
-- misses nothing.
-- Needs lane_pkey, lane_turn_idx, lane_throttled_idx, lane_hint_pkey, key_weight_pkey and lease_pkey, and what the functions need
-- that it calls.
create function jobq.lane_claim(
  of_queue text, of_kinds text[], of_owner text, lease_time interval, each_job boolean, with_plain boolean,
  from_turn bigint, to_turn bigint, again boolean, -- of this pass, that another one would find more
  begin_count smallint default 32767 -- as in JobClaim
) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint, max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint, args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text
)
  language plpgsql
  as $$
#variable_conflict use_column
declare
  lanes_max integer := 100; -- to look at; in sets, at a time
  hints_max constant integer := 1000;
  room integer := nullif(current_setting('jobq_claim.admitted', true), '')::integer;
  shared constant boolean := coalesce(nullif(current_setting('jobq_claim.shared', true), '')::boolean, false); -- the turn
  q jobq.queue;
  counted boolean; -- keys have a limit or a rate
  grouped boolean; -- or a share of their group's
  each_key boolean; -- so they are looked at one by one
  group_clock bigint; -- not null: some lanes may have turns of groups
  new text[] := '{}'; -- keys of lanes that got such turns now
  regrouped integer := 0; -- so many did, or lost them
  key_step bigint; -- of the rate of each key, in microseconds
  key_burst integer;
  throttled boolean; -- some lanes are, perhaps by a rate of before
  due integer := 0; -- lanes that are so no more
  wait_ms bigint; -- until the next one is; null: none is throttled
  unheld bigint;
  unfill_more boolean;
  pauses boolean; -- of keys, since the last claim
  kinds text[]; -- that are not paused
  hints_taken record;
  hints_asked integer := lanes_max; -- hints that were asked for last
  hints integer := 0;
  last_hint bigint := 0; -- the others are behind it, but for those that commit late
  readied text[] := '{}'; -- by hints
  fresh text[] := '{}'; -- keys that hints have told of and that have no lane
  one_by_one boolean;
  many boolean; -- LaneTake takes them
  changed integer := 0; -- lanes that are ready now
  unserved bigint := from_turn; -- turn of the last lane that gave nothing
  looked bigint := from_turn; -- turn of the last lane
  lanes integer; -- that share what is wanted
  weighted boolean; -- some keys of the queue have a weight
  turns_at_once text; -- of each lane, where some keys have a weight: one, many or all
  all_weights integer; -- of the lanes that share what is wanted
  all_dues integer; -- what is left of the turns that these have begun, or are to begin; null: more than wanted
  wanted integer; -- how many to take
  one record; -- of lane_claim_each
  ids bigint[];
  places tid[];
  leases bigint[] := '{}';
  slots smallint[] := '{}';
  lease bigint;
  claimed timestamptz;
  more boolean;
begin
  perform set_config('jobq_claim.lanes', '', true);
  perform set_config('jobq_claim.places', '', true);
  if room is null then
    return;
  end if;
  select x.unheld, x.group_clock, (select h.id from jobq.lane_hint h where h.queue = of_queue and h.id < 0 order by h.id limit 1) is not null,
      (select w.key from jobq.key_weight w where w.queue = of_queue order by w.key limit 1) is not null,
      (select t.rate_step_us from jobq.lane t where t.queue = of_queue and t.throttled_until is not null order by t.rate_step_us limit 1) is not null
    into unheld, group_clock, pauses, weighted, throttled
    from jobq.lane x where x.queue = of_queue and x.key = '';
  if shared and (pauses or unheld is null or group_clock is not null or weighted or throttled
      or exists (select from jobq.queue x
        where x.name = of_queue and (x.key_limit is not null or x.key_rate_jobs is not null or x.key_separator is not null))) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true); -- it is for a claim with a turn of its own
    return;
  end if;
  if not found then
    if not exists (select from jobq.lane x where x.queue = of_queue)
        and not exists (select from jobq.lane_hint x where x.queue = of_queue and x.id > 0) then -- it has no key yet, or none any more
      return;
    end if;
    unheld := 0;
    pauses := true;
    weighted := exists (select from jobq.key_weight w where w.queue = of_queue);
    throttled := true;
    insert into jobq.lane (queue, key, unheld) values (of_queue, '', unheld);
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  if q.paused_at is not null then
    return;
  end if;
  counted := coalesce(q.key_limit, q.key_rate_jobs) is not null;
  grouped := q.key_separator is not null;
  each_key := counted or grouped;
  if q.key_rate_jobs is not null then
    key_step := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
    key_burst := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  end if;
  if not each_key and not weighted then
    lanes_max := 50;
  end if;
  if pauses and not jobq.lane_pause(of_queue) then -- the next call goes on
    perform set_config('jobq_claim.lanes', array[1, 0, 0, 0, counted::integer]::text, true);
    return;
  end if;
  if q.key_limit is null and unheld is null then
    update jobq.lane l set unheld = 0 where l.queue = of_queue and l.key = '';
  elsif q.key_limit is not null and unheld is not null and not jobq.lane_note(of_queue) then
    perform set_config('jobq_claim.lanes', '{1,0,0,0,1}', true);
    return;
  end if;
  if each_key then
    hints_asked := hints_max;
  end if;
  select 0 as hints, null::bigint as last_hint, '{}'::text[] as readied, '{}'::text[] as fresh into hints_taken;
  while not shared or jobq.turn_take('hints ' || of_queue, 0) loop -- without a limit, until there are so many new keys that a claim can begin with them
    select e.hints, e.last_hint, e.readied, e.fresh into hints_taken from jobq.lane_hints_take(of_queue, last_hint, hints_asked, not each_key and from_turn = 0, shared) e;
    last_hint := coalesce(hints_taken.last_hint, last_hint);
    hints := hints + hints_taken.hints;
    readied := readied || hints_taken.readied;
    fresh := fresh || array(select k from unnest(hints_taken.fresh) k except select f from unnest(fresh) f);
    exit when hints_taken.hints < hints_asked or cardinality(fresh) >= lanes_max or hints >= hints_max;
  end loop;
  if not shared then
    select u.lanes, u.more into changed, unfill_more from jobq.lane_unfill(of_queue, q.key_limit, lanes_max) u;
  end if;
  if throttled or key_step is not null then
    due := jobq.lane_due(of_queue, coalesce(key_step, 0), coalesce(key_burst, 0), lanes_max);
    changed := changed + due;
  end if;

  lanes := least(lanes_max, cardinality(fresh) + (select count(*) from (
    select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > from_turn order by x.turn limit lanes_max) x));
  if weighted then
    turns_at_once := case when lanes = lanes_max then 'many' when from_turn = 0 then 'all' else 'one' end;
    if with_plain or room > lanes then
      select w.weights, w.dues into all_weights, all_dues from jobq.lane_weights(of_queue, from_turn, 9223372036854775807, fresh, lanes_max) w;
    end if;
  end if;
  if q.key_limit is not null then
    perform jobq.lane_look_again(of_queue, q.key_limit);
  end if;

  if grouped then
    new := jobq.lane_group(of_queue, q.key_separator, weighted, hints_max);
    regrouped := cardinality(new);
    looked := greatest(from_turn, jobq.group_turn_first() - 1); -- lanes that have no turn of their group yet are for a later claim
  elsif group_clock is not null then
    regrouped := jobq.lane_ungroup(of_queue, hints_max);
  end if;

  if from_turn = 0 then
    to_turn := coalesce((select x.turn from jobq.lane x where x.queue = of_queue and x.turn is not null order by x.turn desc limit 1), 0);
    again := false;
  else
    again := again or changed > 0 or readied <> '{}' or regrouped > 0; -- which are behind to_turn, or were passed by
  end if;
  again := again or due >= lanes_max or coalesce(unfill_more, false);
  wanted := room;
  if not grouped and with_plain and lanes > 0 then
    wanted := room - floor(room::float8 / (coalesce(all_weights, lanes) + 1) + random())::integer;
  end if;
  kinds := array(select k.kind from unnest(of_kinds) as k(kind)
    where k.kind <> all(array(select x.name from jobq.kind x where x.paused_at is not null)) order by k.kind);
  claimed := clock_timestamp();
  lease := jobq.lease_id_next();

  if each_key then
    ids := '{}';
    places := '{}';
    one_by_one := true;
    again := again or hints_taken.hints = hints_asked;
  else
    select s.wanted, s.to_turn, s.again, s.readied, s.looked, s.unserved, s.ids, s.places, s.others_follow
      into wanted, to_turn, again, readied, looked, unserved, ids, places, one_by_one
      from jobq.lane_claim_sets(of_queue, kinds, from_turn, lanes_max, weighted, shared, fresh, hints, last_hint, hints_taken.hints = hints_asked,
        wanted, to_turn, again, readied) s;
    if one_by_one and wanted > 0 and to_turn > looked then
      lanes := (select count(*) from (
        select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn order by x.turn limit lanes_max) x);
      if weighted then
        turns_at_once := case when lanes = lanes_max or looked > from_turn then 'many' when from_turn = 0 then 'all' else 'one' end;
        select w.weights, w.dues into all_weights, all_dues from jobq.lane_weights(of_queue, looked, to_turn, '{}', lanes_max) w where wanted > lanes;
      end if;
    end if;
  end if;
  many := not one_by_one and not each_job;
  if each_job then
    leases := array(select jobq.lease_id_next() from generate_series(1, cardinality(ids)));
    slots := array_fill(1::smallint, array[cardinality(ids)]);
  elsif not many then
    leases := array_fill(lease, array[cardinality(ids)]);
    slots := array(select i::smallint from generate_series(1, cardinality(ids)) i);
  end if;
  if one_by_one and wanted > 0 and to_turn > looked then
    select e.* into one from jobq.lane_claim_each(of_queue, q, kinds, from_turn, to_turn, lanes_max, lanes, shared, weighted, turns_at_once, all_weights, all_dues,
      new, with_plain, lease, cardinality(ids), each_job, claimed, wanted, looked, unserved) e;
    wanted := one.wanted;
    looked := one.looked;
    unserved := one.unserved;
    ids := ids || one.ids;
    places := places || one.places;
    leases := leases || one.leases;
    slots := slots || one.slots;
    again := again or one.again;
  end if;
  again := again or shared;
  more := again;
  if shared and wanted > 0 then
    unserved := 0; -- so that the pass begins anew: it may have passed by lanes
  elsif exists (
      select from jobq.lane x where x.queue = of_queue and x.turn is not null and x.turn > looked and x.turn <= to_turn order by x.turn limit 1) then
    more := true;
  else
    unserved := 0; -- the pass is over
  end if;
  if key_step is not null then
    select greatest(ceil(extract(epoch from x.throttled_until - clock_timestamp()) * 1000), 1) into wait_ms
      from jobq.lane x
      where x.queue = of_queue and x.rate_step_us = key_step and x.rate_burst = key_burst and x.throttled_until is not null
      order by x.throttled_until limit 1;
  end if;
  perform set_config('jobq_claim.admitted', (nullif(current_setting('jobq_claim.admitted', true), '')::integer - cardinality(ids))::text, true);
  perform set_config('jobq_claim.lanes', array[more::integer, unserved, to_turn, again::integer, counted::integer, wait_ms]::text, true);
  if jobq.worker_is_waiting(of_queue)
      and exists (
        select from unnest(readied) as r(key)
          cross join lateral (select from jobq.lane x where x.queue = of_queue and x.key = r.key
            and (x.turn is not null or q.key_limit is not null and x.throttled_until is not null) limit 1) x) then
    perform jobq.wake('work', of_queue);
  end if;
  if many then
    perform set_config('jobq_claim.places', places::text, true);
    return;
  end if;
  if ids = '{}' then
    return;
  end if;
  insert into jobq.lease (id, claimed_at, expires_at, begun, owner, queue, job_ids)
    select s.lease, claimed, claimed + lease_time, begin_count, of_owner, of_queue, s.ids
      from (
        select lease, ids where not each_job
        union all
        select s.lease, array[s.id] from unnest(ids, leases) as s(id, lease) where each_job
      ) s(lease, ids);
  return query
    with taken as (
      delete from jobq.pending p
        where p.ctid = any(places)
        returning p.id, p.position, p.run_at, p.created_at, p.timeout, p.backoff_base, p.backoff_max,
          p.priority, p.attempts, p.max_attempts, p.crashes, p.args_apart, p.queue, p.kind, p.args, p.unique_key,
          p.last_error, p.clear_reason, p.checkpoint, p.metadata, p.tags, p.partition_key
    )
    insert into jobq.run as r
        (id, lease_id, slot, position, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
         crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key)
      select t.id, s.lease, s.slot, t.position, nullif(t.run_at, t.created_at), t.created_at, t.timeout, t.backoff_base,
          t.backoff_max, t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key,
          t.last_error, t.clear_reason, t.checkpoint, t.metadata, t.tags, t.partition_key
        from taken t
        join unnest(ids, leases, slots) as s(id, lease, slot) on s.id = t.id
      returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue, r.kind,
        r.created_at, coalesce(r.run_at, r.created_at), claimed, coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
        coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
        r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null, r.partition_key;
end $$;

-- lane_hints_add adds hints (lane_hint) for keys of which jobs have ended, if the queue has a limit of its
-- keys. With to_wake it wakes idle workers: the transaction will not claim itself.
create function jobq.lane_hints_add(of_queue text, keys text[], to_wake boolean) returns void
  language plpgsql
  as $$
begin
  if not exists (select from jobq.queue q where q.name = of_queue and q.key_limit is not null) then
    return; -- an end makes no key ready
  end if;
  insert into jobq.lane_hint (queue, key) select of_queue, k.key from unnest(keys) as k(key);
  if to_wake and jobq.worker_is_waiting(of_queue) then
    perform jobq.wake('work', of_queue);
  end if;
end $$;

-- lane_prune does for queues that nobody claims from what claims do for the others: it takes hints, and deletes lanes of which
-- nothing waits or runs. If it has found no lane for a day, each time that it looked, it deletes the row '': then workers claim
-- from the queue as from one that never had keys.
--
-- Each call looks at up to row_count hints and up to row_count lanes of one queue: of after_queue behind after_key and after_hint,
-- or of the next queue if after_key is ''. It returns where it has ended; last_queue is null after the last queue. It skips a
-- queue while a claim has its turn.
-- Needs lane_pkey, lane_hint_pkey, paused_key_pkey, key_group_pkey, pending_claim_idx and lease_pkey only.
create function jobq.lane_prune(after_queue text, after_key text, after_hint bigint, row_count integer)
  returns table (last_queue text, last_key text, last_hint bigint)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
  as $$
declare
  hints integer;
  readied boolean;
  lanes integer;
begin
  last_queue := after_queue;
  last_key := '';
  last_hint := 0;
  if after_key = '' then
    last_queue := least(
      (select x.queue from jobq.lane x where x.queue > after_queue order by x.queue, x.key limit 1),
      (select x.queue from jobq.lane_hint x where x.queue > after_queue order by x.queue, x.id limit 1));
  end if;
  if last_queue is null or not jobq.turn_take('queue ' || last_queue, 25) then -- as queue_admit
    return next;
    return;
  end if;
  perform jobq.lane_pause(last_queue);
  with hints_taken as (
    delete from jobq.lane_hint h
      where h.queue = last_queue and h.id = any(array(
        select x.id from jobq.lane_hint x
          where x.queue = last_queue and x.id > case when after_key = '' then 0 else after_hint end
          order by x.id limit row_count for update skip locked))
      returning h.id, h.key
  ), due as materialized (
    select e.key
      from (select x.key from hints_taken x group by x.key) e
      where (select p.key from jobq.paused_key p where p.queue = last_queue order by p.key limit 1) is null -- asked once
        or (select p.key from jobq.paused_key p where p.queue = last_queue and p.key = e.key limit 1) is null
  ), hinted as (
    insert into jobq.lane as l (queue, key, turn, hinted)
      select last_queue, k.key, k.turn, k.turn
        from (select p.key, nextval('jobq.lane_turn_seq') as turn from due p) k
      on conflict on constraint lane_pkey do update
        set turn = case when l.throttled_until is null then coalesce(l.turn, l.due_turn, excluded.turn) end, full_limit = null, hinted = excluded.hinted
        where l.turn is null and l.throttled_until is null or l.looks <> '{}'
      returning l.turn in (l.hinted, l.due_turn) as readied
  )
  select e.hints, coalesce(e.last, after_hint), (select bool_or(h.readied) from hinted h) into hints, last_hint, readied
    from (select count(*) as hints, max(e.id) as last from hints_taken e) e;
  if hints > 0 and not exists (select from jobq.lane x where x.queue = last_queue and x.key = '') then
    insert into jobq.lane (queue, key, unheld) values (last_queue, '', 0);
  end if;
  if readied and jobq.worker_is_waiting(last_queue) then -- who is notified of the hint has not found it
    perform jobq.wake('work', last_queue);
  end if;
  with looked as materialized (
    select x.key, x.held_leases, x.held_slots, x.rate_ready_at
      from jobq.lane x where x.queue = last_queue and x.key > after_key order by x.key limit row_count
  ), over as materialized (
    select k.key
      from looked k
      where (
          select p.id from jobq.pending p
            where p.queue = last_queue and p.partition_key = k.key and p.position is not null
            order by p.priority, p.position limit 1
        ) is null
        and (
          select u.lease
            from unnest(k.held_leases, k.held_slots) as u(lease, slot)
            cross join lateral (select from jobq.lease x where x.id = u.lease and u.slot <> all(x.ended_slots) limit 1) x -- the limit keeps it a lookup
            limit 1
        ) is null
        -- Else the key would have its whole burst again.
        and (k.rate_ready_at > statement_timestamp() and exists (select from jobq.queue q where q.name = last_queue and q.key_rate_jobs is not null)) is not true
  ), gone as (
    delete from jobq.lane l where l.queue = last_queue and l.key = any(array(select o.key from over o))
  )
  select count(*), max(k.key) into lanes, last_key from looked k;
  if hints < row_count and lanes < row_count then
    last_key := '';
    if not exists (select from jobq.lane x where x.queue = last_queue and x.key > '')
        and not exists (select from jobq.lane_hint x where x.queue = last_queue) then
      delete from jobq.key_group g
        where g.ctid = any(array(select x.ctid from jobq.key_group x where x.queue = last_queue order by x.name limit row_count))
          and exists (select from jobq.lane l where l.queue = last_queue and l.key = '' and l.looked_at < statement_timestamp() - interval '1 day');
      delete from jobq.lane l where l.queue = last_queue and l.key = '' and l.looked_at < statement_timestamp() - interval '1 day'
        and (select x.name from jobq.key_group x where x.queue = last_queue order by x.name limit 1) is null; -- else later
      if found then
        perform jobq.turn_forget('queue ' || last_queue), jobq.turn_forget('hints ' || last_queue);
      end if;
      update jobq.lane l set looked_at = statement_timestamp() where l.queue = last_queue and l.key = '' and l.looked_at is null;
    else
      update jobq.lane l set looked_at = null where l.queue = last_queue and l.key = '' and l.looked_at is not null;
    end if;
  else
    last_key := coalesce(last_key, after_key);
  end if;
  return next;
end $$;

-- lane_failed says whether a run has failed for good. It is planned anew for each lease, so that it locks
-- only one day of the history.
create function jobq.lane_failed(of_job bigint, of_lease bigint) returns boolean
  language plpgsql stable
  set plan_cache_mode = force_custom_plan set jit = off
  as $$
begin
  return exists (select from jobq.run r where r.id = of_job and r.lease_id = of_lease and r.state = 'failed');
end $$;

-- lane_next is the next job of a key that may run, in a queue with a key_order, when none of the key's jobs runs; no row if none
-- waits.
--
-- The jobs of a key run in the order of their line. A job that has run and comes back gets another place there, mostly at the end.
-- So the job that ran last, the key's head, is found by its id (lane_head): while it waits it is the next one, whatever its place.
-- waits says that the key has to wait for its head, because the head waits for its retry or for other jobs (step_await); with the
-- order pass, the key does not wait. With the order stop, a head that has failed for good stops its key until it is requeued or
-- deleted.
--
-- Example: 7, 8 and 9 wait. 7 runs, fails, and waits for its retry. Until then hold takes nothing, and pass takes 8. When 7 has
-- failed for the last time, hold takes 8, and stop takes nothing.
--
-- Needs lane_head_pkey, pending_pkey, pending_claim_idx and run_id_idx only.
create function jobq.lane_next(of_queue text, of_key text, of_order text)
  returns table (job_id bigint, waits text, waits_until timestamptz)
  language plpgsql stable
  as $$
declare
  head record;
  waiting record;
begin
  select h.job_id, h.lease_id into head from jobq.lane_head h where h.queue = of_queue and h.key = of_key;
  if head.job_id is not null then
    select p.id, p.position, p.run_at, p.waits into waiting from jobq.pending p
      where p.id = head.job_id and p.queue = of_queue and p.partition_key = of_key;
    if waiting.position is not null then
      return query select head.job_id, null::text, null::timestamptz;
      return;
    elsif waiting.id is not null and of_order <> 'pass' then
      return query select head.job_id, case when waiting.waits then 'waiting' else 'retry' end, case when waiting.waits is null then waiting.run_at::timestamptz end;
      return;
    elsif waiting.id is null and of_order = 'stop' and jobq.lane_failed(head.job_id, head.lease_id) then
      return query select head.job_id, 'failed', null::timestamptz;
      return;
    end if;
  end if;
  return query select p.id, null::text, null::timestamptz
    from jobq.pending p
    where p.queue = of_queue and p.partition_key = of_key and p.position is not null
    order by p.priority, p.position
    limit 1;
end $$;

-- lane_work says whether a queue has a job of these kinds, with a key, that could run now or after the end of a running one. A job
-- does not count if its key is paused or, with a key_order, if the key waits for the retry of its head or is stopped by a failed
-- one. It looks at 1,000 keys. If there are more, the answer is true with a key_order; without one, it is true if a further key
-- has a job of these kinds.
-- Needs pending_claim_idx, pending_pkey, paused_key_pkey, and what lane_next needs.
create function jobq.lane_work(of_queue text, of_order text, kinds text[]) returns boolean
  language plpgsql stable
  set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off set jit = off
  as $$
declare
  last_key text := '';
begin
  for looked in 1 .. 1000 loop
    select p.partition_key into last_key from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key
      order by p.partition_key, p.priority, p.position limit 1;
    if not found then
      return false;
    end if;
    continue when exists (select from jobq.paused_key k where k.queue = of_queue and k.key = last_key);
    if of_order is null then
      perform from jobq.pending p
        where p.queue = of_queue and p.partition_key = last_key and p.position is not null and p.kind = any(lane_work.kinds)
        order by p.priority, p.position limit 1;
    else
      perform from jobq.lane_next(of_queue, last_key, of_order) n
        where n.waits is null and (select p.kind from jobq.pending p where p.id = n.job_id limit 1) = any(lane_work.kinds);
    end if;
    if found then
      return true;
    end if;
  end loop;
  if of_order is null then
    perform from jobq.pending p
      where p.queue = of_queue and p.position is not null and p.partition_key > last_key and p.kind = any(lane_work.kinds)
      order by p.partition_key, p.priority, p.position limit 1;
    return found;
  end if;
  return true;
end $$;

-- lane_next_lock locks the next job of a key for lane_claim_each, if it is of these kinds and nobody else has
-- locked it. free is 0 if the key has to wait for its head, which waits for its retry or for other jobs, or
-- has failed; else 1. The caller has the queue's turn.
create function jobq.lane_next_lock(of_queue text, of_key text, of_order text, kinds text[])
  returns table (free integer, ids bigint[], places tid[])
  language plpgsql
  as $$
declare
  head record;
begin
  select n.job_id, n.waits into head from jobq.lane_next(of_queue, of_key, of_order) n;
  free := case when head.waits is null then 1 else 0 end;
  select array[x.id], array[x.ctid] into ids, places
    from jobq.pending x
    where free = 1 and x.id = head.job_id and x.queue || '' = of_queue and x.partition_key || '' = of_key -- not by pending_claim_idx, which would walk the key's line
      and x.position is not null and x.kind = any(kinds)
    for update skip locked;
  ids := coalesce(ids, '{}');
  places := coalesce(places, '{}');
  return next;
end $$;

-- lane_take lets one job of a partition key start, beside the claims that go by lanes, if the limit, the rate and the order of the
-- queue's keys allow it, and notes that: it returns whether it may. The job is one that came back (claim_alone), so with an order it
-- is mostly the key's head. A lane that is full afterwards is found to be so by the next claim that looks at it.
-- The caller has the queue's turn. Needs lane_pkey, lane_head_pkey and lease_pkey, and what lane_next needs.
create function jobq.lane_take(q jobq.queue, of_key text, of_job bigint, lease bigint, claimed timestamptz) returns boolean
  language plpgsql
  as $$
#variable_conflict use_variable
declare
  key_step constant bigint := jobq.rate_step_us(q.key_rate_jobs, q.key_rate_period);
  key_burst constant integer := coalesce(q.key_rate_burst, jobq.rate_burst_default(q.key_rate_jobs, q.key_rate_period));
  lane jobq.lane;
  ready_at timestamptz;
begin
  if q.key_limit is null and key_step is null then
    return true;
  elsif q.key_limit is not null and exists (select from jobq.lane l where l.queue = q.name and l.key = '' and l.unheld is not null) then
    return false; -- what runs is not known yet: see lane_note
  end if;
  select l.* into lane from jobq.lane l where l.queue = q.name and l.key = of_key;
  if q.key_limit <= (
      select count(*) from (select distinct h.lease, h.slot from unnest(lane.held_leases, lane.held_slots) as h(lease, slot)) h
        where h.slot <> all(array(select unnest(x.ended_slots) from jobq.lease x where x.id = h.lease))
          and exists (select from jobq.lease x where x.id = h.lease)) then
    return false;
  elsif q.key_order <> 'pass' and exists (
      select from jobq.lane_next(q.name, of_key, q.key_order) n where n.waits is not null and n.job_id <> of_job) then
    return false;
  end if;
  if key_step is not null then
    ready_at := jobq.rate_ready_at(coalesce(lane.rate_ready_at, claimed), coalesce(lane.rate_step_us, key_step), key_step, key_burst, claimed);
    if key_burst - extract(epoch from ready_at - claimed) * 1000000 / key_step < 1 then
      return false;
    end if;
    ready_at := ready_at + key_step * interval '1 us';
  end if;
  insert into jobq.lane as l (queue, key, held_leases, held_slots, rate_ready_at, rate_step_us, rate_burst)
    values (q.name, of_key, case when q.key_limit is null then '{}' else coalesce(lane.held_leases, '{}') || lease end,
      case when q.key_limit is null then '{}' else coalesce(lane.held_slots, '{}') || 1::smallint end,
      ready_at, key_step, case when key_step is not null then key_burst end)
    on conflict on constraint lane_pkey do update set held_leases = excluded.held_leases, held_slots = excluded.held_slots,
      rate_ready_at = excluded.rate_ready_at, rate_step_us = excluded.rate_step_us, rate_burst = excluded.rate_burst;
  if q.key_order is not null then
    insert into jobq.lane_head as h (queue, key, job_id, lease_id) values (q.name, of_key, of_job, lease)
      on conflict on constraint lane_head_pkey do update set job_id = excluded.job_id, lease_id = excluded.lease_id;
  end if;
  return true;
end $$;

-- suspect_next is the suspect (pending_suspect_idx) of these kinds that is due first in a queue, and in how many milliseconds; no
-- row if there is none that may start, because the queue, its kind or its key is paused. Needs pending_suspect_idx, kind_paused_idx,
-- paused_key_pkey and queue_pkey: the conditions leave the planner no other index.
create function jobq.suspect_next(of_queue text, kinds text[]) returns table (id bigint, kind text, due_ms bigint)
  language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
begin
  return query
    select p.id, p.kind::text, ceil(extract(epoch from p.run_at - clock_timestamp()) * 1000)::bigint
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0 and p.crashes >= least(2, p.max_attempts - p.attempts) and p.kind = any(kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null))
        and not exists (select from jobq.queue q where q.name = of_queue and q.paused_at is not null)
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null -- a lookup
      order by p.run_at, p.id
      limit 1;
end $$;

-- claim_alone claims one suspect (pending_suspect_idx) that is due, the one that has waited longest, for a worker that runs nothing
-- else until the job has ended. It keeps the limits, rates and orders of the queue and of its keys: it has the queue's turn, as
-- claims of queues with limits have, and looks at 100 suspects at most for one that may start. It takes turns with nobody's lanes.
-- Needs pending_suspect_idx, kind_paused_idx, paused_key_pkey and queue_pkey, and what the functions need that it calls.
create function jobq.claim_alone(of_queue text, of_kinds text[], of_owner text, lease_time interval) returns table (
  id bigint, lease_token bigint, slot smallint, "position" bigint, priority smallint, attempts smallint, max_attempts smallint, crashes smallint,
  queue text, kind text, created_at timestamptz, run_at timestamptz, started_at timestamptz, timeout_ms bigint, args jsonb, checkpoint jsonb,
  metadata jsonb, tags text[], last_error text, clear_reason text, has_key boolean, partition_key text
)
  language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off
  as $$
#variable_conflict use_column
declare
  q jobq.queue;
  suspect record;
  new_lease bigint;
  claimed timestamptz;
begin
  if (select a.admitted from jobq.queue_admit(of_queue, 1, 1, true) a) = 0 then
    return;
  end if;
  select x.* into q from jobq.queue x where x.name = of_queue;
  q.name := of_queue; -- which may have no row
  new_lease := jobq.lease_id_next();
  claimed := clock_timestamp();
  for suspect in
    select p.id, p.ctid as place, p.partition_key
      from jobq.pending p
      where p.queue = of_queue and p.crashes > 0 and p.crashes >= least(2, p.max_attempts - p.attempts) and p.run_at <= claimed and p.kind = any(of_kinds)
        and p.kind <> all(array(select k.name from jobq.kind k where k.paused_at is not null)) and q.paused_at is null
        and (select true from jobq.paused_key k where k.queue = of_queue and k.key = p.partition_key limit 1) is null -- a lookup
      order by p.run_at, p.id
      limit 100
  loop
    perform from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id for update skip locked;
    continue when not found
      or suspect.partition_key <> '' and not jobq.lane_take(q, suspect.partition_key, suspect.id, new_lease, claimed);
    insert into jobq.lease (id, claimed_at, expires_at, owner, queue, job_ids)
      values (new_lease, claimed, claimed + lease_time, of_owner, of_queue, array[suspect.id]);
    return query
      with taken as (
        delete from jobq.pending p where p.ctid = suspect.place and p.id = suspect.id
          returning p.*
      )
      insert into jobq.run as r
          (id, lease_id, slot, position, run_at, created_at, timeout, backoff_base, backoff_max, priority, attempts, max_attempts,
           crashes, args_apart, queue, kind, args, unique_key, last_error, clear_reason, checkpoint, metadata, tags, partition_key)
        select t.id, new_lease, 1, t.position, nullif(t.run_at, t.created_at), t.created_at, t.timeout, t.backoff_base, t.backoff_max,
            t.priority, t.attempts, t.max_attempts, t.crashes, t.args_apart, t.queue, t.kind, t.args, t.unique_key, t.last_error,
            t.clear_reason, t.checkpoint, t.metadata, t.tags, nullif(t.partition_key, '')
          from taken t
        returning r.id, r.lease_id, r.slot, r.position, r.priority, r.attempts, r.max_attempts, r.crashes, r.queue, r.kind,
          r.created_at, coalesce(r.run_at, r.created_at), claimed, coalesce(ceil(extract(epoch from r.timeout) * 1000), 0)::bigint,
          coalesce(r.args, (select a.args from jobq.payload a where a.job_id = r.id)),
          r.checkpoint, r.metadata, r.tags, r.last_error, r.clear_reason, r.unique_key is not null, coalesce(r.partition_key, '');
    perform jobq.queue_charge(of_queue, 0);
    return;
  end loop;
end $$;

-- lane_freed says that a job of a key, null or '' for none, was cancelled or deleted: others of its key may have waited for it.
create function jobq.lane_freed(of_queue text, of_key text) returns void
  language plpgsql security definer set search_path = pg_catalog, pg_temp
  as $$
begin
  if of_key <> '' then
    perform jobq.lane_hints_add(of_queue, array[of_key], true);
  end if;
end $$;

-- lane_head_prune deletes the rows of lane_head that nobody needs any more. That is so if the queue has no
-- order; if it gets one again, jobs of before hold nobody. It is also so if the key has no lane, because
-- nothing of it runs or is in the line, and the job neither waits nor stops its key. Each call looks at
-- row_count keys after the given place, and returns where it has ended; null after the last one. It waits
-- for no lock. Needs queue_pkey, lane_head_pkey, lane_pkey, pending_pkey and run_id_idx only.
create function jobq.lane_head_prune(after_queue text, after_key text, row_count integer)
  returns table (last_queue text, last_key text)
  language plpgsql
  set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set jit = off
  as $$
declare
  over_queues text[];
  over_keys text[];
  over_jobs bigint[];
  over_leases bigint[];
begin
  with looked as materialized (
    select h.queue, h.key, h.job_id, h.lease_id from jobq.lane_head h
      where (h.queue, h.key) > (after_queue, after_key)
      order by h.queue, h.key limit row_count
  ), over as materialized (
    select k.*
      from looked k
      cross join lateral (select (select q.key_order from jobq.queue q where q.name = k.queue limit 1) as key_order) q
      where q.key_order is null
        or (select l.key from jobq.lane l where l.queue = k.queue and l.key = k.key limit 1) is null
        and (select p.id from jobq.pending p where p.id = k.job_id limit 1) is null
        and (q.key_order <> 'stop' or not jobq.lane_failed(k.job_id, k.lease_id))
  )
  select array(select o.queue from over o), array(select o.key from over o), array(select o.job_id from over o), array(select o.lease_id from over o),
      (select k.queue from looked k offset row_count - 1 limit 1), (select k.key from looked k offset row_count - 1 limit 1)
    into over_queues, over_keys, over_jobs, over_leases, last_queue, last_key;
  -- A claim may have noted another one since, or be about to.
  delete from jobq.lane_head d
    where d.ctid = any(array(
      select h.place
        from unnest(over_queues, over_keys, over_jobs, over_leases) as o(queue, key, job_id, lease_id)
        cross join lateral (
          select x.ctid as place from jobq.lane_head x
            where x.queue = o.queue and x.key = o.key and x.job_id = o.job_id and x.lease_id = o.lease_id
            for update skip locked
        ) h));
  return next;
end $$;

-- sql/roles.sql says who may call them.
revoke execute on function
  jobq.error_pattern, jobq.job_problem, jobq.json_shown, jobq.job_unreadable, jobq.job_set_apart, jobq.unreadable_set_apart, jobq.json_of, jobq.object_problem, jobq.unique_keys_take, jobq.unique_key_refuse, jobq.unique_keys_release,
  jobq.json_canonical, jobq.unique_period, jobq.unique_rule, jobq.unique_rules, jobq.unique_conflicts_refuse, jobq.jobs_replace,
  jobq.after_require, jobq.after_failure_require,
  jobq.enqueue(text, jsonb, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], jsonb, bigint[], text, text, jsonb),
  jobq.enqueue(text, json, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], json, bigint[], text, text, json),
  jobq.enqueue(text, text, text, bigint, timestamptz, bigint, text, interval, interval, interval, text[], text, bigint[], text, text, text),
  jobq.enqueue_arrays, jobq.dependencies_named, jobq.enqueue_many(jsonb), jobq.enqueue_many(json), jobq.enqueue_many(text),
  jobq.rate_burst_default, jobq.rate_step_us, jobq.rate_ready_at, jobq.rate_again_at, jobq.throttle_ready_at, jobq.throttled_until, jobq.key_throttled_until, jobq.turn_shareable, jobq.queue_admit, jobq.queue_charge, jobq.line_priority, jobq.lane_pause, jobq.lane_hints_take, jobq.lane_pick, jobq.lane_weights, jobq.lane_shares, jobq.lane_note, jobq.lane_due, jobq.group_turn_first, jobq.group_turn, jobq.lane_group, jobq.lane_ungroup, jobq.lane_group_shares, jobq.lane_group_charge, jobq.lane_unfill, jobq.lane_look_again, jobq.lane_walk, jobq.lane_claim_sets, jobq.lane_claim_each, jobq.lane_claim, jobq.lane_hints_add, jobq.lane_prune,
  jobq.lane_failed, jobq.lane_next, jobq.lane_work, jobq.lane_next_lock, jobq.lane_take, jobq.suspect_next, jobq.claim_alone, jobq.lane_freed, jobq.lane_head_prune,
  jobq.run_end, jobq.runs_over, jobq.job_exists, jobq.moving_refuse, jobq.cancel, jobq.args_require, jobq.running_refuse, jobq.requeue, jobq.delete_job, jobq.backoff_delay,
  jobq.partition_yield, jobq.partition_add, jobq.kept_for, jobq.keep_from, jobq.retention_span, jobq.keep_from_day, jobq.day_needed, jobq.attempts_forget, jobq.sweep_begin, jobq.sweep_blocks, jobq.sweep_leases, jobq.history_sweep, jobq.retention_changed, jobq.partition_prune, jobq.payload_prune, jobq.default_prune, jobq.history_analyze
  from public;
