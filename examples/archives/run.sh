#!/bin/sh
# Real tools on real files: parts of Go's own source as .tar.gz, converted to
# .tar.xz, each in a process group of its own with limits.
set -eu
cd "$(dirname "$0")"

folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
source=$(go env GOROOT)/src
for name in archive bufio bytes compress encoding image strings text; do
  tar --create --gzip --file "$folder/$name.tar.gz" --directory "$source" "$name"
done
echo "not an archive" > "$folder/broken.tar.gz"

for archive in "$folder"/*.tar.gz; do
  echo "{\"from\": \"$archive\", \"to\": \"${archive%.gz}.xz\"}"
done | jobq enqueue recompress - --queue archives > "$folder/jobs"
jobq worker --config jobq.yaml --exit-when-empty --log-level error

for archive in "$folder"/*.tar.xz; do echo "$(basename "$archive") $(xz --decompress --stdout "$archive" | tar --list | wc -l) files"; done
jobq list --kind recompress
jobq show "$(sed -n 2p "$folder/jobs")" # the broken one
