-- What programs write while they run.

-- Output of programs that run, in the pieces in which it was flushed: only
-- what is new is written. Unlogged: it is for who watches, the end of it is
-- kept with the attempt, and a crash of the server may empty it.
create unlogged table jobq.output (
  job_id      bigint      not null,
  lease_token bigint      not null,
  -- Of the content in all bytes that the run has written: where it begins, and
  -- where what comes next begins. Between two pieces there may be a gap.
  begins_at   bigint      not null,
  ends_at     bigint      not null,
  written_at  timestamptz not null default clock_timestamp(),
  content     text        not null,
  constraint output_pkey primary key (job_id, lease_token, begins_at),
  constraint "content must be at most 64 KiB" check (octet_length(content) <= 65536)
);
comment on table jobq.output is 'What running programs have written, while somebody watches.';
-- For the janitor, which drops what has been there for some minutes: what was
-- written since, and is still read, can be hundreds of thousands of pieces.
create index output_written_at_idx on jobq.output (written_at);

-- lost_output is what a lost run has written, as far as its worker has stored that: the end of it, as much as an
-- attempt holds, and not more than 2,000 pieces. A line says how many bytes are missing before it and where. Null:
-- nothing.
create function jobq.lost_output(of_job bigint, of_token bigint) returns text
  language sql stable
  begin atomic
    with pieces as (
      select o.begins_at, o.content, o.begins_at - coalesce(lag(o.ends_at) over (order by o.begins_at), 0) as missing
        from (
          select x.begins_at, x.ends_at, x.content
            from jobq.output x
            where x.job_id = of_job and x.lease_token = of_token
            order by x.begins_at desc
            limit 2000
        ) o
    ), whole as (
      select string_agg(
            case when p.missing > 0 then format(E'… %s bytes cut …\n', p.missing) else '' end || p.content,
            '' order by p.begins_at) as text
        from pieces p
    )
    -- In characters, each of which has 4 bytes at most.
    select case when octet_length(w.text) <= 65536 then w.text
        else E'…\n' || right(w.text, greatest(65532 - (octet_length(w.text) - char_length(w.text)), 16383)) end
      from whole w;
  end;
