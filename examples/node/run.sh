#!/bin/sh
# Node as a kept process and as an HTTP server.
set -eu
cd "$(dirname "$0")"

port=$((20000 + $$ % 20000))
log=$(mktemp)
node server.mjs "$port" > "$log" &
server=$!
worker=
trap 'kill $server $worker 2>/dev/null || true; rm -f "$log"' EXIT
until grep -q ready "$log"; do kill -0 $server; done

digest=$(jobq enqueue digest '{"text": "hello"}' --queue node)
paid=$(jobq enqueue charge '{"amount": 12, "busy": true}' --queue node)
bad=$(jobq enqueue charge '{}' --queue node)
jobq worker --queue node=4 --run-stream digest='node stream.mjs' --run-http charge="http://127.0.0.1:$port/charge" --log-level error &
worker=$!
for job in $digest $paid $bad; do jobq logs -f "$job"; done # until each has ended
for job in $digest $paid $bad; do jobq show "$job"; done
