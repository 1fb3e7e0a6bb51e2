#!/bin/sh
# Enqueues from SQL, as any language can, and lets a worker run the jobs.
set -eu
cd "$(dirname "$0")"

psql "$DATABASE_URL" --quiet --set ON_ERROR_STOP=1 --file enqueue.sql

# `cat` is the handler: it prints the args, which the runs keep as output.
jobq worker --run greet=cat --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT
until [ "$(psql "$DATABASE_URL" -Atc "select count(*) from jobq.job where state <> 'completed'")" = 0 ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done

jobq list
