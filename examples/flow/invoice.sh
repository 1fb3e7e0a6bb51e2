#!/bin/sh
# Writes an invoice, and fails for good (65) if it runs beside another one of its customer,
# or as the third one.
set -eu
running=$FOLDER/running
mkdir "$running/$1" || exit 65 # another one of the customer has made it
trap 'rmdir "$running/$1"' EXIT
[ "$(ls "$running" | wc -l)" -le 2 ] || exit 65
echo "$1 $2" >> "$FOLDER/written"
sleep 0.1
