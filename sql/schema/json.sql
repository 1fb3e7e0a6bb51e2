-- What JSON may come into a column, and how it is shown. `jobq.` stands for the schema in all of these files, whatever
-- its name is.

-- The limit on args, in bytes of jsonb as PostgreSQL stores it. A function
-- and not a row, because a CHECK may use it and the planner puts its body in its
-- place. `create or replace` it to change the limit. It is stable, since the planner runs
-- an immutable function: that makes every insert of one row 5 % slower, because CHECKs are
-- planned anew for each statement.
create function jobq.args_bytes_max() returns integer
  language sql stable parallel safe
  return 1048576;
comment on function jobq.args_bytes_max is
  'The limit on args, in bytes as stored and as text. Replace it to change it.';

-- json_problem says in words why a JSON value may not come in: it is too long as PostgreSQL stores it or as text, or
-- nested too deeply. Null means that it may. Both lengths count, since 10 bytes that are stored can be 131,072 as text:
--
--   1e131071    10 bytes as stored, 131,072 as text. 50,000 of them: 700 kB and 6.5 GB, which no statement can read
--
-- What is stored in few bytes, and not compressed, is never too long for the server to make its text. For anything
-- else, json_problem_large looks first.
create function jobq.json_problem(name text, value jsonb, bytes_max integer) returns text
  language plpgsql stable strict
  as $$
declare
  stored integer := pg_catalog.pg_column_size(value);
  bytes integer;
begin
  if stored > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as stored, not %s', name, bytes_max, stored);
  end if;
  if stored > 8192 or pg_catalog.pg_column_compression(value) is not null then
    return jobq.json_problem_large(name, value, bytes_max);
  end if;
  if stored > 800 and pg_catalog.jsonb_path_exists(value, '$.**{101}') then -- each level takes 8 bytes or more
    return pg_catalog.format('%s must be nested at most 100 levels deep', name);
  end if;
  bytes := pg_catalog.octet_length(value::text);
  if bytes > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s', name,
        bytes_max, bytes);
  end if;
  return null;
end $$;

-- json_problem_large is json_problem for values of which the server may be unable to make the text. It adds up first
-- how long the long numbers are at least, so that the text is made only of values in which this is not too much. A
-- value that the server cannot read at all, since its page is damaged, is not this function's matter.
create function jobq.json_problem_large(name text, value jsonb, bytes_max integer) returns text
  language plpgsql stable strict
  as $$
declare
  bytes bigint;
begin
  if pg_catalog.jsonb_path_exists(value, '$.**{101}') then
    return pg_catalog.format('%s must be nested at most 100 levels deep', name);
  end if;
  select pg_catalog.sum(case when pg_catalog.abs(x.item::numeric) < 1e3000 then 100
      when pg_catalog.abs(x.item::numeric) < 1e30000 then 3000 else 30000 end)
    into bytes
    from pg_catalog.jsonb_array_elements(pg_catalog.jsonb_path_query_array(value,
        'strict $.** ? (@ > 1e100 || @ < -1e100)')) as x(item);
  if bytes is null or bytes <= bytes_max then
    bytes := pg_catalog.octet_length(value::text);
  end if;
  if bytes > bytes_max then
    return pg_catalog.format('%s must be at most %s bytes as text, with all numbers written out, not %s or more', name,
        bytes_max, bytes);
  end if;
  return null;
exception
  when program_limit_exceeded or statement_too_complex then
    return pg_catalog.format('%s must be at most %s bytes as text, and nested at most 100 levels deep', name,
        bytes_max);
  when data_corrupted then
    return null;
end $$;

-- json_require raises an error for what json_problem refuses, and is true for everything else. In a CHECK it tells more
-- than the CHECK's name could.
create function jobq.json_require(name text, value jsonb, bytes_max integer) returns boolean
  language plpgsql stable strict
  as $$
declare
  problem text := jobq.json_problem(name, value, bytes_max);
begin
  if problem is not null then
    raise sqlstate 'JQ001' using message = problem, hint = 'Keep the bulk elsewhere, and store here where it is.';
  end if;
  return true;
end $$;

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
    message = left(regexp_replace(format('%s must be JSON that PostgreSQL can store: %s. %s', name, sqlerrm, detail),
        '\s+', ' ', 'g'), 300);
end $$;

-- json_canonical writes all numbers in a value in one way: jsonb keeps 1.0 and 1 as they were written, and languages
-- differ in which of them they write. The order of members is always the same in jsonb.
create function jobq.json_canonical(value jsonb) returns jsonb
  language plpgsql immutable parallel safe
  as $$
begin
  if strpos(value::text, '.') = 0 then -- no such number in it
    return value;
  end if;
  return case jsonb_typeof(value)
    when 'number' then to_jsonb(trim_scale((value #>> '{}')::numeric))
    when 'array' then (select jsonb_agg(jobq.json_canonical(e.value) order by e.i)
        from jsonb_array_elements(value) with ordinality as e(value, i))
    when 'object' then (select jsonb_object_agg(m.key, jobq.json_canonical(m.value)) from jsonb_each(value) m)
    else value
  end;
end $$;

-- json_shown is what is shown of a JSON value: the value itself, unless it is too long or too deep to be read. Then it
-- is {"jobq:unreadable": "the value must be …"}, so that one such value does not keep the rest of its job, or of a
-- list, from being shown. What is stored in 400 bytes, and not compressed, needs no look: at most 5 MB as text, and 50
-- levels deep.
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

-- args_require raises an error if the large args of a job that is to run again are gone: retention removes them before
-- the day of the job. It must be a statement of its own, after the job was taken, to see what was removed in the
-- meantime.
create function jobq.args_require(job_id bigint) returns void
  language plpgsql
  as $$
begin
  if exists (
    select from jobq.pending p
      where p.id = args_require.job_id and p.args_apart
        -- and not p.id: that could become a join
        and not exists (select from jobq.payload a where a.job_id = args_require.job_id)
  ) then
    raise sqlstate 'JQ003' using
      message = format('job %s: its args have been removed by retention (they were over 1000 bytes): enqueue it anew',
          args_require.job_id);
  end if;
end $$;
