-- What happened to jobs and janitors, for people.

-- What janitors and starting workers saw and did, for people: see docs/internals/guarantees.md.
create table jobq.event (
  id      bigint      not null generated always as identity primary key,
  at      timestamptz not null default clock_timestamp(),
  job_id  bigint,
  type    text        not null,
  source  text        not null, -- the id of the janitor or worker
  queue   text,
  message text        not null default '',
  constraint "type must be a known event"
    check (type in ('stalled', 'orphaned', 'quarantined', 'leadership_acquired', 'leadership_lost',
        'leadership_released', 'error')),
  constraint "message must be at most 1000 characters" check (char_length(message) <= 1000)
);
comment on table jobq.event is 'What janitors and starting workers saw and did, for people.';
-- For the janitor, which forgets old events.
create index event_at_idx on jobq.event (at);

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
comment on function jobq.error_pattern is
  'What errors of the same cause have in common: # for numbers, ids and addresses.';
