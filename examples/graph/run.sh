#!/bin/sh
# A job for each file, which run side by side, and one that waits for them all and adds up
# their results. All are added at once, or none.
set -eu
cd "$(dirname "$0")"

jobq worker --config jobq.yaml --queue graph=4 --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT

lines=$(
  names=""
  for file in ../*/run.sh; do
    names="$names${names:+, }\"$file\""
    echo "{\"name\": \"$file\", \"kind\": \"count\", \"args\": {\"file\": \"$file\"}}"
  done
  echo "{\"kind\": \"add\", \"after\": [$names]}"
)
total=$(echo "$lines" | jobq enqueue --graph --queue graph --max-attempts 1 | tail -n 1)
echo "words: $(jobq wait "$total")"
jobq show --graph "$total"

# When one fails, what waits for it is cancelled, and says why: exit code 8.
bad=$(jobq enqueue count '{"file": "no such file"}' --queue graph --max-attempts 1)
jobq enqueue add --queue graph --after "$bad" --wait || echo "exit code $?"
