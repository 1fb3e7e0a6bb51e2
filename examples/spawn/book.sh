#!/bin/sh
# A book whose pages are jobs of their own: it adds each once, although it is killed, and waits
# for them without a slot. `set -e` ends it when the await has suspended the job.
set -eu

pages=
for page in 1 2 3; do
  pages="$pages $(jobq job spawn "page $page" --kind page "{\"page\": $page}" --queue books)"
done
[ "$JOBQ_ATTEMPT" != 1 ] || kill -9 $$ # a crash

ends=$(jobq job await "all pages" $pages) # not in a pipe, where its exit code would be lost
words=0
for each in $(echo "$ends" | sed -n 's/.*"words":\([0-9]*\).*/\1/p'); do
  words=$((words + each))
done
jobq job result "{\"words\": $words}"
