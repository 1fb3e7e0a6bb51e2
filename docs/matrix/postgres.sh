#!/usr/bin/env bash
# Runs the tests of the packages with SQL on each PostgreSQL named, and writes the table of
# docs/postgresql.md: postgres.sh VERSION ... server.sh gets the servers. The table's rows
# of other versions stay as they are: each names the commit that was tested.
# GATE is put in front of each go test, for machines that share their cores.
set -euo pipefail
cd "$(dirname "$0")/../.."

# All that have tests with a server, but for the documentation's own. The terminal UI's are in cmd/jobq.
packages=(
  . ./cmd/jobq ./internal/db ./sql/... ./internal/doctor ./internal/listen ./janitor ./jobqtest ./keyring ./metrics ./migrate ./monitor
  ./operator ./tracing ./worker ./worker/programs
)
page=docs/postgresql.md
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ":!$page" || commit+=+

# write puts a row into the table, in place of the one of the same major version.
write() {
  local row=$1 major rows
  major=$(sed -E 's/^\| ([0-9]+).*/\1/' <<< "$row")
  rows=$(sed -n '/^<!-- matrix-postgres -->$/,/^<!-- \/matrix-postgres -->$/p' "$page" | grep -E '^\| [0-9]' | grep -vE "^\| $major\." || true)
  docs/matrix/write.sh "$page" matrix-postgres "| PostgreSQL | tests that passed | failed | skipped | commit |
|---|---|---|---|---|
$(printf '%s\n' "$rows" "$row" | grep . | sort -V)"
}

failed=0
for version; do
  bin=$(docs/matrix/server.sh "$version")
  log=$PWD/bin/postgres-$version.json
  mkdir -p bin && : > "$log"
  for package in "${packages[@]}"; do
    JOBQ_PG_BIN=$bin ${GATE:-} go test -count=1 -timeout 30m -json "$package" >> "$log" || failed=1
  done
  row=$(jq -rs --arg version "$("$bin/postgres" --version | sed 's/.* //')" --arg commit "$commit" '
    [.[] | select(.Test)] as $tests
    | def count($action): [$tests[] | select(.Action == $action)] | length;
      "| \($version) | \(count("pass")) | \(count("fail")) | \(count("skip")) | \($commit) |"' "$log")
  echo "$row"
  jq -r 'select(.Action == "fail") | "failed: \(.Package) \(.Test // "")"' "$log" >&2
  write "$row"
done
exit $failed
