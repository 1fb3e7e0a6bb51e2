#!/bin/sh
# Runs a Java program for each job: one that completes, and one whose args are wrong.
set -eu
cd "$(dirname "$0")"

jobq worker --queue java=2 --run wordcount='java WordCount.java ${args.text}' --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT

jobq enqueue wordcount '{"text": "to be or not to be"}' --queue java --wait
jobq enqueue wordcount '{"text": "2 be"}' --queue java --wait || echo "exit code of jobq: $?"
