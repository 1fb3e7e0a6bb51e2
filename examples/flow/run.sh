#!/bin/sh
# A customer with many invoices and two with few, in a queue with a limit, a limit of each
# customer, a rate and a schedule, which jobq.yaml declares. Two workers share it.
set -eu
cd "$(dirname "$0")"

FOLDER=$(mktemp -d)
export FOLDER
mkdir "$FOLDER/running"

jobs=$(
  for customer in acme acme acme acme acme acme acme acme globex initech; do
    echo "{\"kind\": \"invoice\", \"queue\": \"invoices\", \"partition_key\": \"$customer\", \"args\": {\"customer\": \"$customer\", \"number\": 1}}"
  done | jobq enqueue --ndjson
)

jobq worker --config jobq.yaml --log-level error &
one=$!
jobq worker --config jobq.yaml --log-level error &
other=$!
trap 'kill $one $other 2>/dev/null || true; wait; rm -r "$FOLDER"' EXIT

jobq wait $jobs --timeout 5m > /dev/null # it fails if one of them has failed
number=$(psql "$DATABASE_URL" -AtXv ON_ERROR_STOP=1 -c "select count(*) from jobq.job where queue = 'invoices'
  and started_at <= (select started_at from jobq.job where partition_key = 'globex')")
echo "8 invoices of acme came before; that of globex began as number $number"
[ "$number" -le 4 ] # keys take turns

until grep -q "acme statement" "$FOLDER/written"; do
  kill -0 $one $other # ends this script when a worker has ended
  sleep 0.2
done
echo "the schedule has added a statement, which waited for its turn"
jobq queues show invoices
jobq schedules show statement
