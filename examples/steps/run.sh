#!/bin/sh
# Runs one order: five attempts, of which four are killed, a sleep, and an event.
set -eu
cd "$(dirname "$0")"
LEDGER=$(mktemp)
export LEDGER
query() { psql "$DATABASE_URL" -qXAtc "$1"; }

job=$(query "select jobq.enqueue('order', queue => 'orders', backoff_base => '10 ms', backoff_max => '10 ms')")
jobq worker --config jobq.yaml --queue orders --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true; wait $worker 2>/dev/null || true; rm -f "$LEDGER"' EXIT

# The job waits for its event, and holds no slot.
until [ "$(query "select count(*) from jobq.job j join jobq.step s on s.job_id = j.id where j.state = 'scheduled' and s.type = 'event'")" = 1 ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done
jobq emit "paid order $job" '{"by": "ann"}'
until [ "$(query "select state from jobq.job where id = $job")" = completed ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done

jobq show "$job"
cat "$LEDGER"
echo "charged $(grep -c charged "$LEDGER") time, shipped $(grep -c shipped "$LEDGER") time"
