#!/bin/sh
# Runs the Go program of docs/start.md until it has run its own job, one that was added
# from a shell, and one that it refuses.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)

psql "$DATABASE_URL" -qXc 'create table customer (name text)'
go build -o "$dir/start" .
"$dir/start" > "$dir/out" 2>&1 &
program=$!
trap 'kill $program 2>/dev/null || true; rm -r "$dir"' EXIT
jobq enqueue greet '{"name": "Emil"}' --wait --wait-timeout 2m
jobq enqueue greet '{}' --wait --wait-timeout 2m || echo "exit code $?"
until grep -q Dora "$dir/out"; do
  kill -0 $program # ends this script when the program has ended
  sleep 0.1
done
kill -TERM $program
wait $program
cat "$dir/out"
