#!/bin/sh
# Kills a worker between the effect of a job and its completion. The worker charges
# twice then; its mended version charges once.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
trap 'rm -r "$dir"' EXIT

go build -o "$dir/worker" .
"$dir/worker" -setup

crash_test() {
  jobq crash-test --kind charge --args '{"order_id": {{n}}}' --jobs 2 --forced 2 \
    --effect-query 'select job_id, count(*) from public.charged where job_id = any($1) group by 1' -- "$@"
}

echo "the worker as it was:"
if crash_test "$dir/worker"; then
  echo "the double charge was not found"
  exit 1
fi
echo "the mended worker:"
crash_test "$dir/worker" -mended
