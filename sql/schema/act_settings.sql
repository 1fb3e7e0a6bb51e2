-- Actions of people on queues, kinds, keys and settings.

-- act_queue pauses or resumes a queue. It returns the id of the audit row, null if
-- the queue was paused, or not paused, already; and whether the queue was known
-- before. A queue that nobody knows yet can be paused: its first job then waits.
create function jobq.act_queue(actor text, action text, queue text, note text)
  returns table (audit bigint, known boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    case when action is null or action not in ('pause', 'resume') then
      format('action must be pause or resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('queue', queue, 128),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  known := jobq.queue_known(act_queue.queue);
  if act_queue.action = 'pause' then
    insert into jobq.queue as q (name, paused_at, paused_by, pause_reason)
      values (act_queue.queue, clock_timestamp(), jobq.actor_of(act_queue.actor), act_queue.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where q.paused_at is null;
  else
    select q.pause_reason into was from jobq.queue q where q.name = act_queue.queue and q.paused_at is not null
        for update;
    update jobq.queue q
      set paused_at = null, paused_by = null, pause_reason = null
      where q.name = act_queue.queue and q.paused_at is not null;
  end if;
  if found then
    if act_queue.action = 'resume' then
      -- Whoever looked at the whole line meanwhile found nothing there, not even
      -- what has come back to its old place.
      perform jobq.wake('head', act_queue.queue);
    end if;
    audit := jobq.audit_begin(act_queue.actor, act_queue.action, act_queue.queue, act_queue.note, null,
      case when was is not null then jsonb_build_object('pause_reason', was) end);
  end if;
  return next;
end $$;

-- act_kind pauses or resumes a kind, in all queues. It returns the id of the audit row, or
-- null if the kind was paused, or not paused, already. Running jobs are not affected. To resume a kind
-- also sets its number of crashes to 0.
create function jobq.act_kind(actor text, action text, kind text, note text) returns bigint
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    case when action is null or action not in ('kind_pause', 'kind_resume') then
      format('action must be kind_pause or kind_resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('kind', kind, 128),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_kind.action = 'kind_pause' then
    insert into jobq.kind as k (name, paused_at, paused_by, pause_reason)
      values (act_kind.kind, clock_timestamp(), jobq.actor_of(act_kind.actor), act_kind.note)
      on conflict (name) do update
        set paused_at = excluded.paused_at, paused_by = excluded.paused_by, pause_reason = excluded.pause_reason
        where k.paused_at is null;
  else
    delete from jobq.kind k where k.name = act_kind.kind and k.paused_at is not null returning k.pause_reason into was;
  end if;
  if not found then
    return null;
  end if;
  if act_kind.action = 'kind_resume' then
    -- Who has the kind has looked beyond its jobs: see act_queue.
    perform jobq.wake('head', q.name)
      from (select distinct jsonb_object_keys(case when jsonb_typeof(w.queues) = 'object' then w.queues end) as name
          from jobq.worker w where act_kind.kind = any(w.kinds) limit 1000) q;
  end if;
  return jobq.audit_begin(act_kind.actor, act_kind.action, act_kind.kind, act_kind.note, null,
    case when was is not null then jsonb_build_object('pause_reason', was) end);
end $$;
comment on function jobq.act_kind is
  'Pauses a kind, or lets it go on; returns the number of the action, or null if nothing changed.';

-- act_key pauses or resumes a partition key of a queue. It returns the id of the audit row, or null if the key was
-- paused, or not paused, already; and whether a job of the key is available now. Running jobs are not affected. A key
-- that nobody knows yet can be paused: its first job then waits. It adds a hint for claims (lane_pause and
-- lane_hints_take), so it does not wait for claims, and they do not wait for it.
create function jobq.act_key(actor text, action text, queue text, key text, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was text; -- the reason for a pause that ends
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    case when action is null or action not in ('key_pause', 'key_resume') then
      format('action must be key_pause or key_resume, not %s', coalesce(left(action, 100), 'null')) end,
    jobq.length_problem('queue', queue, 128),
    jobq.length_problem('partition_key', key, 255),
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  if act_key.action = 'key_pause' then
    insert into jobq.paused_key (queue, key, paused_at, paused_by, pause_reason)
      values (act_key.queue, act_key.key, clock_timestamp(), jobq.actor_of(act_key.actor), act_key.note)
      on conflict on constraint paused_key_pkey do nothing;
  else
    delete from jobq.paused_key k where k.queue = act_key.queue and k.key = act_key.key
        returning k.pause_reason into was;
  end if;
  if found then
    if act_key.action = 'key_pause' then
      insert into jobq.lane_hint (id, queue, key) overriding system value
        values (-nextval('jobq.lane_hint_id_seq'), act_key.queue, act_key.key);
    else
      perform jobq.lane_come(act_key.queue, array[act_key.key]);
      perform jobq.wake('work', act_key.queue);
    end if;
    audit := jobq.audit_begin(act_key.actor, act_key.action, act_key.queue, act_key.note,
      jsonb_build_object('partition_key', act_key.key),
      case when was is not null then jsonb_build_object('pause_reason', was) end);
  end if;
  perform from jobq.pending p where p.queue = act_key.queue and p.partition_key = act_key.key and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;
comment on function jobq.act_key is
  'Pauses a partition key of a queue, or lets it go on; returns the number of the action, null if nothing changed, '
  'and whether a job of it is available.';

-- act_key_weight sets the weight of a partition key of a queue, from the next claim on; 1 is the weight of a key for
-- which none was set. It returns the id of the audit row, or null if the key has this weight already; and whether a job
-- of the key is available now. A key that nobody knows yet can have a weight.
create function jobq.act_key_weight(actor text, queue text, key text, weight integer, note text)
  returns table (audit bigint, has_jobs boolean)
  language plpgsql
  as $$
declare
  was integer;
  problem text := coalesce(
    jobq.length_problem('actor', jobq.actor_of(actor), 255),
    jobq.length_problem('queue', queue, 128),
    jobq.length_problem('partition_key', key, 255),
    case when weight is null or weight not between 1 and 100 then
      format('weight must be 1 to 100, not %s', coalesce(weight::text, 'null')) end,
    jobq.note_problem(note));
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  loop -- until it is known what the weight was: somebody may take it away meanwhile
    select w.weight into was from jobq.key_weight w where w.queue = act_key_weight.queue and w.key = act_key_weight.key
        for update;
    exit when found or act_key_weight.weight = 1;
    insert into jobq.key_weight (queue, key, weight)
        values (act_key_weight.queue, act_key_weight.key, act_key_weight.weight)
      on conflict on constraint key_weight_pkey do nothing;
    exit when found;
  end loop;
  if act_key_weight.weight = 1 then
    delete from jobq.key_weight w where w.queue = act_key_weight.queue and w.key = act_key_weight.key;
  else
    update jobq.key_weight w set weight = act_key_weight.weight
      where w.queue = act_key_weight.queue and w.key = act_key_weight.key and w.weight <> act_key_weight.weight;
  end if;
  if act_key_weight.weight <> coalesce(was, 1) then
    audit := jobq.audit_begin(act_key_weight.actor, 'key_weight', act_key_weight.queue, act_key_weight.note,
      jsonb_build_object('partition_key', act_key_weight.key, 'weight', act_key_weight.weight),
      jsonb_build_object('weight', coalesce(was, 1)));
  end if;
  perform from jobq.pending p where p.queue = act_key_weight.queue and p.partition_key = act_key_weight.key
      and p.position is not null
    order by p.priority, p.position limit 1;
  has_jobs := found;
  return next;
end $$;
comment on function jobq.act_key_weight is
  'Gives a partition key of a queue a weight, 1 to 100; returns the number of the action, null if nothing changed, '
  'and whether a job of it is available.';

-- act_settings changes the settings of the schema that are not null. A failed_retention of 0 means the default, which
-- is that of finished_retention. It returns the id of the audit row, or null if nothing changes.
create function jobq.act_settings(
    actor text, finished_retention interval default null, quarantine_crashes integer default null,
    note text default null,
    keep_until_exported boolean default null, exported_before date default null, failed_retention interval default null)
  returns bigint
  language plpgsql
  as $$
declare
  problem text := case
    when finished_retention not between interval '1 day' and interval '10 years' then
      format('finished_retention must be 1 day to 10 years, not %s', finished_retention)
    when failed_retention <> interval '0' and failed_retention not between interval '1 day' and interval '10 years' then
      format('failed_retention must be 1 day to 10 years, or 0 for as long as finished_retention, not %s',
        failed_retention)
    when quarantine_crashes not between 0 and 1000 then
      format('quarantine_crashes must be 0 to 1000, not %s', quarantine_crashes)
    when exported_before not between date '2026-01-01' and date '9999-12-31' then
      format('exported_before must be a day in the years 2026 to 9999, not %s', exported_before)
  end;
  old jobq.setting;
  was jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  select s.* into strict old from jobq.setting s for update;
  -- As text they would differ: 1 day and 24:00:00.
  select jsonb_object_agg(c.name, c.was), jsonb_object_agg(c.name, c.new) into was, new
    from (values
      ('finished_retention', to_jsonb(old.finished_retention), to_jsonb(act_settings.finished_retention),
        act_settings.finished_retention <> old.finished_retention),
      ('failed_retention', to_jsonb(old.failed_retention),
        to_jsonb(nullif(act_settings.failed_retention, interval '0')),
        act_settings.failed_retention <> coalesce(old.failed_retention, interval '0')),
      ('quarantine_crashes', to_jsonb(old.quarantine_crashes), to_jsonb(act_settings.quarantine_crashes),
        act_settings.quarantine_crashes <> old.quarantine_crashes),
      ('keep_until_exported', to_jsonb(old.keep_until_exported), to_jsonb(act_settings.keep_until_exported),
        act_settings.keep_until_exported <> old.keep_until_exported),
      ('exported_before', to_jsonb(old.exported_before), to_jsonb(act_settings.exported_before),
        act_settings.exported_before <> old.exported_before)) c (name, was, new, differs)
    where c.differs;
  if new is null then
    return null;
  end if;
  update jobq.setting s
    set finished_retention = coalesce(act_settings.finished_retention, s.finished_retention),
      failed_retention = nullif(coalesce(act_settings.failed_retention, s.failed_retention), interval '0'),
      quarantine_crashes = coalesce(act_settings.quarantine_crashes, s.quarantine_crashes),
      keep_until_exported = coalesce(act_settings.keep_until_exported, s.keep_until_exported),
      exported_before = coalesce(act_settings.exported_before, s.exported_before);
  return jobq.audit_begin(act_settings.actor, 'settings', null, act_settings.note, new, was);
end $$;
comment on function jobq.act_settings is
  'Changes settings of the whole schema; returns the number of the action, or null if nothing changed.';

-- queue_changed is a queue with the settings in change, for act_queue_set. If a new lease does not fit extend_every,
-- extend_every becomes null, which means a third of the lease. A key_order without a key_limit sets a key_limit of 1.
create function jobq.queue_changed(was jobq.queue, change jsonb) returns jobq.queue
  language plpgsql stable
  as $$
declare
  changed jobq.queue;
begin
  begin
    select r.* into changed from jsonb_populate_record(was, change) r;
  exception when data_exception then
    raise sqlstate 'JQ001' using message = format('change: %s', left(sqlerrm, 200));
  end;
  if not change ? 'extend_every' and changed.extend_every > changed.lease / 2 then
    changed.extend_every := null;
  end if;
  if not change ? 'key_limit' and changed.key_order is not null and changed.key_limit is null then
    changed.key_limit := 1;
  end if;
  return changed;
end $$;

-- act_queue_set changes settings of a queue: the members of change, which have the names of columns of jobq.queue. It
-- returns the id of the audit row, or null if nothing changes. The queue need not be known; it gets its row when a
-- setting differs from its default.
create function jobq.act_queue_set(actor text, queue text, change jsonb, note text default null) returns bigint
  language plpgsql
  as $$
declare
  names constant text[] := '{lease, extend_every, heartbeat, stale_grace, redelivery, redelivery_delay, reset_on_reap,
    max_lost, max_running, key_limit, key_order, key_separator, rate_jobs, rate_period, rate_burst, key_rate_jobs,
    key_rate_period, key_rate_burst, age_after, retention, failed_retention}';
  required constant text[] := '{lease, heartbeat, stale_grace, redelivery, redelivery_delay, reset_on_reap, age_after}';
  limits constant text[] := '{max_running, key_limit, key_order, key_separator, rate_jobs, rate_period, rate_burst,
    key_rate_jobs, key_rate_period, key_rate_burst}';
  problem text := coalesce(
    jobq.length_problem('queue', queue, 128),
    case when jsonb_typeof(change) is distinct from 'object' then 'change must be a JSON object' end,
    (select case when c.key <> all (names) then format('change: unknown member "%s"', left(c.key, 100))
        else format('change: %s must not be null', c.key) end
      from jsonb_each(change) c
      where c.key <> all (names) or (c.value = 'null' and c.key = any (required))
      order by c.key
      limit 1));
  was jobq.queue;
  wanted jobq.queue;
  added boolean; -- the queue had no row
  old jsonb; -- what differs, before
  new jsonb; -- and after
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem;
  end if;
  insert into jobq.queue (name) values (act_queue_set.queue) on conflict (name) do nothing;
  added := found;
  select q.* into strict was from jobq.queue q where q.name = act_queue_set.queue for update;
  wanted := jobq.queue_changed(was, change);
  -- As text they would differ: 1 day and 24:00:00.
  if wanted is not distinct from was then
    -- Else a misspelt name would be known, without an entry in the audit.
    delete from jobq.queue q where q.name = act_queue_set.queue and added;
    return null;
  end if;
  begin
    update jobq.queue q
      set lease = wanted.lease, extend_every = wanted.extend_every, heartbeat = wanted.heartbeat,
        stale_grace = wanted.stale_grace, redelivery = wanted.redelivery, redelivery_delay = wanted.redelivery_delay,
        reset_on_reap = wanted.reset_on_reap, max_lost = wanted.max_lost, max_running = wanted.max_running,
        key_limit = wanted.key_limit,
        key_order = wanted.key_order, key_separator = wanted.key_separator, rate_jobs = wanted.rate_jobs,
        rate_period = wanted.rate_period, rate_burst = wanted.rate_burst, key_rate_jobs = wanted.key_rate_jobs,
        key_rate_period = wanted.key_rate_period, key_rate_burst = wanted.key_rate_burst, age_after = wanted.age_after,
        retention = wanted.retention, failed_retention = wanted.failed_retention
      where q.name = act_queue_set.queue;
  exception when check_violation then
    get stacked diagnostics problem = constraint_name; -- which is the limit in words
    raise sqlstate 'JQ001' using message = problem;
  end;
  select jsonb_object_agg(b.key, b.value), jsonb_object_agg(a.key, a.value) into old, new
    from jsonb_each(to_jsonb(was)) b
    join jsonb_each(to_jsonb(wanted)) a on a.key = b.key
    where a.value <> b.value;
  if new ?| limits then -- workers claim otherwise from a queue with limits, and find nothing until they know
    perform jobq.notify('settings', act_queue_set.queue);
  end if;
  return jobq.audit_begin(act_queue_set.actor, 'settings', act_queue_set.queue, act_queue_set.note, new, old);
end $$;
comment on function jobq.act_queue_set is
  'Changes settings of a queue; returns the number of the action, or null if nothing changed.';
