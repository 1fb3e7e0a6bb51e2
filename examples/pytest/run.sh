#!/bin/sh
# Tests of a handler with pytest: a database for each test, a worker, and a wait for a job.
set -eu
cd "$(dirname "$0")"

python=python3
"$python" -c 'import psycopg; from pytest import fixture' 2>/dev/null || python=/usr/bin/python3
PYTHONDONTWRITEBYTECODE=1 "$python" -m pytest -q -p no:cacheprovider
