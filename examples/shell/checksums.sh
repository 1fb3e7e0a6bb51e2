#!/bin/sh
# A handler in shell: the SHA-256 of every file of a folder, with progress. It
# remembers how many files are done, and a later run goes on after them.
set -eu

args=$(cat) # {"folder": "...", "stop_after": 3}
folder=$(printf '%s' "$args" | sed -n 's/.*"folder": *"\([^"]*\)".*/\1/p')
stop_after=$(printf '%s' "$args" | sed -n 's/.*"stop_after": *\([0-9]*\).*/\1/p')
[ -d "$folder" ] || { echo "no folder $folder" >&2; exit 65; } # will not be better next time

finished=${JOBQ_CHECKPOINT:-0}
[ "$finished" -eq 0 ] || echo "go on after $finished files"
total=$(ls "$folder" | wc -l)
number=0
for name in "$folder"/*; do
  number=$((number + 1))
  [ "$number" -gt "$finished" ] || continue
  sha256sum "$name"
  jobq job checkpoint "$number"
  jobq job progress $((number * 100 / total)) --stage checksums --message "$(basename "$name")"
  if [ "$number" = "${stop_after:-}" ] && [ "$JOBQ_ATTEMPT" = 1 ]; then
    kill -KILL $$ # something breaks
  fi
done
jobq job result "{\"files\": $number, \"attempts\": $JOBQ_ATTEMPT}"
