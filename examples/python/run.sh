#!/bin/sh
# Runs a Python program for each job. The first job fails halfway, and its
# second run goes on where the first has stopped.
set -eu
cd "$(dirname "$0")"

job=$(jobq enqueue wordcount '{"text": "to be or not to be", "fail_at": 3}' --queue python)
bad=$(jobq enqueue wordcount '{"no": "text"}' --queue python)

jobq worker --queue python=2 --run wordcount='python3 wordcount.py' --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT
until [ "$(psql "$DATABASE_URL" -Atc "select count(*) from jobq.job where queue = 'python' and state not in ('completed', 'failed')")" = 0 ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done

jobq show "$job"
jobq show "$bad"
