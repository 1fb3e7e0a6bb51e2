#!/bin/sh
# A shell script as a handler. It is killed halfway, and its second run goes on
# from the checkpoint.
set -eu
cd "$(dirname "$0")"

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
for number in 1 2 3 4 5 6; do echo "file $number" > "$folder/$number.txt"; done

job=$(jobq enqueue checksums "{\"folder\": \"$folder\", \"stop_after\": 3}" --queue shell)
jobq worker --queue shell=1 --run checksums=./checksums.sh --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true; rm -r "$folder"' EXIT

jobq logs -f "$job" # until it has ended
jobq show "$job"
