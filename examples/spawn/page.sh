#!/bin/sh
# A page: it has a hundred words more than the one before.
set -eu
page=$(sed -n 's/.*"page": *\([0-9]*\).*/\1/p')
jobq job result "{\"words\": $((page * 100))}"
