#!/usr/bin/env bash
# Runs the tests of poolers with each PgBouncer named, and writes the table of
# docs/postgresql.md: poolers.sh PROGRAM ...
# GATE is put in front of go test, for machines that share their cores.
set -euo pipefail
cd "$(dirname "$0")/../.."

table='| PgBouncer | in session mode: cells that passed | in transaction mode | the mode is noticed | TUI and doctor | commit |
|---|---|---|---|---|---|'
failed=0
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ':!docs/postgresql.md' || commit+=+
mkdir -p bin
for program; do
  log=$PWD/bin/pooler.json
  JOBQ_TEST_PGBOUNCER=$(command -v "$program") ${GATE:-} go test -count=1 -json ./worker ./internal/db ./sql/... ./internal/doctor ./cmd/jobq \
    -run '^(TestPoolerMatrix|TestPoolerListen|TestPoolerIsNoticed|TestFindSessions.*|TestPooler|TestTUIPgBouncer)$' > "$log" || failed=1
  row=$(jq -rs --arg version "$("$program" --version | sed -n '1s/PgBouncer //p')" --arg commit "$commit" '
    [.[] | select(.Test and (.Action == "pass" or .Action == "fail"))] as $tests
    | def cells($names): [$tests[] | select(.Test | test($names))] | "\(map(select(.Action == "pass")) | length) of \(length)";
      "| \($version) | \(cells("^TestPoolerMatrix/session/.*/")) | \(cells("^TestPoolerMatrix/(?!session/)[^/]+/[^/]+/")) | \(cells("^TestFindSessions[^/]*/|^TestPoolerIsNoticed/")) | \(cells("^(TestPooler|TestTUIPgBouncer)$")) | \($commit) |"' "$log")
  echo "$row"
  jq -r 'select(.Action == "fail") | "failed: \(.Package) \(.Test // "")"' "$log" >&2
  table+=$'\n'$row
done
docs/matrix/write.sh docs/postgresql.md matrix-poolers "$table"
exit $failed
