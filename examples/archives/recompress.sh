#!/bin/sh
# Makes an .tar.xz of a .tar.gz. The result appears under its name only when it
# is whole, so that a run that was killed leaves nothing that looks finished.
set -eu
from=$1 to=$2
trap 'rm -f "$to.$JOBQ_LEASE_TOKEN.part"' EXIT

gzip --test "$from" || exit 65 # broken, and will be next time
jobq job progress 10 --stage compress --message "$(basename "$from")"
gzip --decompress --stdout "$from" | xz > "$to.$JOBQ_LEASE_TOKEN.part"
jobq job progress 90 --stage verify
[ "$(xz --decompress --stdout "$to.$JOBQ_LEASE_TOKEN.part" | sha256sum)" = "$(gzip --decompress --stdout "$from" | sha256sum)" ]
mv "$to.$JOBQ_LEASE_TOKEN.part" "$to"
jobq job result "{\"before\": $(wc -c < "$from"), \"after\": $(wc -c < "$to")}"
