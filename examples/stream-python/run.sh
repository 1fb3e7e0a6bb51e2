#!/bin/sh
# A Python process that takes job after job: 500 jobs, two processes.
set -eu
cd "$(dirname "$0")"

seq 500 | sed 's/.*/{"text": "a good and great day, number &"}/' | jobq enqueue sentiment - --queue sentiment > /dev/null
bad=$(jobq enqueue sentiment '{"no": "text"}' --queue sentiment)
last=$(jobq enqueue sentiment '{"text": "awful"}' --queue sentiment)

jobq worker --queue sentiment=2 --run-stream sentiment='python3 sentiment.py' --exit-when-empty --log-level error
jobq stats
jobq show "$last"
jobq show "$bad"
