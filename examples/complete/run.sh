#!/bin/sh
# Programs that complete their jobs in their own transactions: run.sh shell|python|node|ruby|java ...
# Of three jobs of each, one is killed before its commit and one after it. Each
# charges once. PYTHON says which Python has psycopg, if it is not python3.
set -eu
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- shell

psql "$DATABASE_URL" -qXc 'create table if not exists public.payment (kind text not null, job bigint not null)'
for language; do
  for args in '{}' '{"die": "before"}' '{"die": "after"}'; do
    jobq enqueue "charge-$language" "$args" --queue charges > /dev/null
  done
done

jobq worker --config jobq.yaml --queue charges=3 --log-level error ${PYTHON:+--run charge-python="$PYTHON charge.py"} &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT
until [ "$(psql "$DATABASE_URL" -XAtc "select count(*) from jobq.job where queue = 'charges' and state not in ('completed', 'failed')")" = 0 ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done

for language; do
  psql "$DATABASE_URL" -XAtc "select format('%s: %s jobs completed, %s payments for %s jobs', '$language', count(*) filter (where state = 'completed'),
      (select count(*) from public.payment where kind = '$language'), (select count(distinct job) from public.payment where kind = '$language'))
    from jobq.job where kind = 'charge-$language'"
done
