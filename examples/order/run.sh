#!/bin/sh
# Two orders of lamps. The first is shipped; its worker is killed while it waits for that.
# The card of the second is declined, so its lamp goes back.
set -eu
cd "$(dirname "$0")"
dir=$(mktemp -d)
go build -o "$dir/order" .
psql "$DATABASE_URL" -qX -v ON_ERROR_STOP=1 -f shop.sql
query() { psql "$DATABASE_URL" -qXAtc "$1"; }
shop() {
  "$dir/order" -review-after 1s 2>"$dir/log" &
  worker=$!
}
trap 'kill $worker 2>/dev/null || true; wait $worker 2>/dev/null || true; rm -r "$dir"' EXIT

shop
first=$(jobq enqueue order '{"id": 7, "item": "lamp", "cents": 4200}' --queue orders)
second=$(jobq enqueue order '{"id": 8, "item": "lamp", "cents": 999900}' --queue orders)
until [ "$(query "select count(*) from jobq.step s join jobq.job j on j.id = s.job_id where s.name = 'shipped order 7' and j.state = 'scheduled'")" = 1 ]; do
  kill -0 $worker # ends this script when the worker has ended
  sleep 0.1
done
kill -9 $worker
wait $worker || true
jobq emit 'shipped order 7' '{"parcel": "RB42"}' # while no worker lives
shop
jobq wait "$first" "$second"

jobq show "$first"
query "select key || ': ' || content || ', requests: ' || (select count(*) from outside.request r where r.key = d.key) from outside.done d order by key"
echo "lamps left: $(query "select pieces from public.stock")"
