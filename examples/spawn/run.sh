#!/bin/sh
# Runs one book in a queue with one slot: it adds its pages, is killed, and has their results.
set -eu
cd "$(dirname "$0")"
query() { psql "$DATABASE_URL" -qXAtc "$1"; }

book=$(query "select jobq.enqueue('book', queue => 'books', backoff_base => '10 ms', backoff_max => '10 ms')")
jobq worker --config jobq.yaml --queue books=1 --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true; wait $worker 2>/dev/null || true' EXIT
jobq wait "$book"
jobq show "$book"
echo "pages: $(query "select count(*) from jobq.job where kind = 'page'")"
