#!/bin/sh
# The handler: counts the words of the file that its args name. The count is its result.
set -eu
file=$(sed 's/.*"file": "\([^"]*\)".*/\1/')
words=$(wc -w < "$file")
jobq job result "$words"
