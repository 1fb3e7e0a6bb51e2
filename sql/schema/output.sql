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
