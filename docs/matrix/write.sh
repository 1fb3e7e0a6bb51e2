#!/usr/bin/env bash
# Puts a text between the marks of a page: write.sh PAGE MARK TEXT. The marks are the
# lines <!-- MARK --> and <!-- /MARK -->.
set -euo pipefail
page=$1 mark=$2 text=$3
grep -qx "<!-- $mark -->" "$page" && grep -qx "<!-- /$mark -->" "$page" || { echo "$page has no marks $mark" >&2; exit 1; }
TEXT=$text awk -v begin="<!-- $mark -->" -v end="<!-- /$mark -->" '
  $0 == begin { print; print ""; print ENVIRON["TEXT"]; print ""; skip = 1; next }
  $0 == end { skip = 0 }
  !skip' "$page" > "$page.new"
mv "$page.new" "$page"
