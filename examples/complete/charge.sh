# Charges a customer, and completes the job in the same transaction: both or neither.
# With "die" in the args, the first run is killed before or after its commit.
set -eu
args=$(cat)
die=
[ "$JOBQ_ATTEMPT" = 1 ] && die=$(printf %s "$args" | sed -n 's/.*"die": *"\([a-z]*\)".*/\1/p')

# psql stops at the first error, and what has no commit is rolled back.
{
  echo "begin;"
  echo "insert into public.payment (kind, job) values ('shell', :id);"
  echo "select jobq.complete(:id, :'token', '{\"paid\": true}');"
  [ "$die" != before ] || echo "\\! kill -9 $$"
  echo "commit;"
} | psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -v id="$JOBQ_JOB_ID" -v token="$JOBQ_RUN_TOKEN"

[ "$die" != after ] || kill -9 $$
echo charged
