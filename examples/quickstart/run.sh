#!/bin/sh
# Runs the program of the README until it has run its job, and stops it.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)

go build -o "$dir/quickstart" .
"$dir/quickstart" > "$dir/out" 2>&1 &
program=$!
trap 'kill $program 2>/dev/null || true; rm -r "$dir"' EXIT
until grep -q 'order 7' "$dir/out"; do
  kill -0 $program # ends this script when the program has ended
  sleep 0.1
done
kill -TERM $program
wait $program
cat "$dir/out"
jobq list 'kind:send_receipt'
