#!/bin/sh
# Runs a Ruby program for each job: one that completes, and one whose args are wrong.
set -eu
cd "$(dirname "$0")"

jobq worker --queue ruby=2 --run wordcount='ruby wordcount.rb' --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT

jobq enqueue wordcount '{"text": "to be or not to be"}' --queue ruby --wait
jobq enqueue wordcount '{"no": "text"}' --queue ruby --wait || echo "exit code of jobq: $?"
