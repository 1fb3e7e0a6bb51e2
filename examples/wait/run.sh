#!/bin/sh
# A job for each file, which run side by side; then their results are added up.
set -eu
cd "$(dirname "$0")"

jobq worker --queue words=4 --run words=./words.sh --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT

for file in ../*/run.sh; do echo "{\"file\": \"$file\"}"; done |
  jobq enqueue words - --queue words |
  xargs jobq wait --timeout 5m | # a line of JSON for each job, as it ends
  sed 's/.*"result":\([0-9]*\).*/\1/' |
  awk '{ words += $1 } END { print words " words in " NR " files" }'

# One job, and what comes of a file that is not there: exit code 7.
jobq enqueue words '{"file": "no such file"}' --queue words --max-attempts 1 --wait || echo "exit code $?"
