# Adds jobs with psql: one, many, at most one of a key, and one in a transaction.
set -eu
sql() { psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 "$@"; }

# Values are variables of psql, which quotes them. It replaces them in what it reads
# from standard input, and not in -c.
sql -v args='{"file": "a.png"}' <<'SQL'
select jobq.enqueue('resize-shell', args => :'args', queue => 'images');
SQL

# Many in one statement, from a file of JSON.
sql -v jobs='[{"kind": "resize-shell", "args": {"file": "b.png"}}, {"kind": "resize-shell", "args": {"file": "c.png"}}]' <<'SQL'
select id from jobq.enqueue_many(:'jobs');
SQL

# At most one unfinished job with this key: the second call returns the first one's id.
for _ in 1 2; do
  sql -c "select jobq.enqueue('resize-shell', args => '{\"file\": \"d.png\"}', unique_key => 'd.png')"
done

# The job exists if the transaction commits, and only then.
for end in commit rollback; do
  sql <<SQL
begin;
insert into public.picture (language, file) values ('shell', 'e.png');
select jobq.enqueue('resize-shell', args => '{"file": "e.png"}');
$end;
SQL
done
