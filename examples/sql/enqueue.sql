-- One job. Only the kind is needed; the other arguments have names.
select jobq.enqueue('greet', '{"name": "Ada"}');
select jobq.enqueue('greet', args => '{"name": "Grace"}', priority => -1, max_attempts => 3);

-- A job exists when the transaction that adds it commits, and only then.
create table if not exists public.customer (name text);
begin;
insert into public.customer values ('Edsger');
select jobq.enqueue('greet', '{"name": "Edsger"}');
commit;
begin;
insert into public.customer values ('nobody');
select jobq.enqueue('greet', '{"name": "nobody"}');
rollback;

-- At most one unfinished job with this key: the second call returns the id of
-- the first.
select jobq.enqueue('greet', '{"name": "Barbara"}', unique_key => 'barbara') =
       jobq.enqueue('greet', '{"name": "Barbara"}', unique_key => 'barbara') as same_job;

-- Many in one statement.
select id from jobq.enqueue_many('[
  {"kind": "greet", "args": {"name": "Tony"}, "run_at": "2000-01-01T00:00:00Z"},
  {"kind": "greet", "args": {"name": "Frances"}, "tags": ["compilers"]}
]');

-- A plain INSERT works as well.
insert into jobq.pending (kind, args) values ('greet', '{"name": "Donald"}');
