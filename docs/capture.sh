#!/usr/bin/env bash
# Writes docs/tui.md and the screen in README.md: captures of the terminal UI
# in tmux, on a private PostgreSQL with real workers that really fail; or, with
# the argument "recording", docs/tui.svg. Run it with `make captures` or `make
# recording`; needs tmux and psql.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != inside ]; then
  CGO_ENABLED=0 go build -o bin/jobq ./cmd/jobq
  exec bin/jobq dev --ephemeral -- "$0" inside "${1:-captures}"
fi
jobq=$PWD/bin/jobq
scratch=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; tmux -S "$scratch/tmux" kill-server 2>/dev/null || true; rm -rf "$scratch"' EXIT

cat >"$scratch/invoice" <<'END'
#!/bin/sh
sleep 0.2
read -r args
[ -e "${0%/*}/mended" ] && args=mended
case $args in *'"tenant": 44'*) echo "connect mx.example.com:25" >&2; echo "smtp 421 4.7.0 rate limited" >&2; exit 1 ;; esac
echo sent
END
cat >"$scratch/report" <<'END'
#!/bin/sh
for i in $(seq 40); do
  echo "{\"progress\": $((i * 2)), \"stage\": \"rows\", \"message\": \"$i of 50\"}" >&3
  echo "row group $i"
  sleep 1
done
END
chmod +x "$scratch/invoice" "$scratch/report"
export USER=ana
"$jobq" worker --run SendInvoice="$scratch/invoice" --run Resize='sh -c "sleep 0.05; echo resized"' --run Report="$scratch/report" \
  -q email=8 -q thumbnails=16 -q reports=2 >"$scratch/worker.log" 2>&1 &
"$jobq" worker --run Resize='sh -c "sleep 0.05; echo resized"' -q thumbnails=8 >"$scratch/worker2.log" 2>&1 &

q() { psql -qAt "$DATABASE_URL" -c "$1"; }
# An hour of history for the charts, and queues in trouble and in order.
q "insert into jobq.stat (minute, run_seconds, wait_seconds, completed, failed, retried, lost, cancelled, queue, kind)
   select date_trunc('minute', now()) - m * interval '1 minute', 90, 40, (600 + 400 * sin(m / 9.0))::int, 0, 0, 0, 0, 'thumbnails', 'Resize'
   from generate_series(2, 59) m"
q "select jobq.enqueue('SendInvoice', jsonb_build_object('tenant', case when i % 2 = 0 then 4411 else 7 end, 'batch', '2026-09-24'), queue => 'email', max_attempts => 2, tags => '{eu,nightly}') from generate_series(1, 60) i" >/dev/null
q "select jobq.enqueue('Charge', '{}', queue => 'billing') from generate_series(1, 12)" >/dev/null
q "select jobq.enqueue('Resize', '{\"asset\": 8812}', queue => 'thumbnails', run_at => now() + interval '1 hour') from generate_series(1, 40)" >/dev/null
"$jobq" queues pause billing --reason 'books are closed' >/dev/null
report=$("$jobq" enqueue Report '{"month": "2026-10"}' --queue reports)
sleep 8
(while sleep 0.3; do q "select jobq.enqueue('Resize', '{\"asset\": 8812}', queue => 'thumbnails') from generate_series(1, 4)" >/dev/null 2>&1 || exit; done) &

if [ "$2" = recording ]; then # what has failed works now, and is to be requeued
  touch "$scratch/mended"
  (cd bench && go run ./record -jobq "$jobq" -out ../docs/tui.svg)
  exit
fi

page=docs/tui.md
cat >"$page" <<'END'
# The terminal UI

`jobq tui` shows what waits, runs and has failed, live, and acts on what you see. Keys are in [keys.md](keys.md) and
under `?`. These are captures of a real terminal (tmux) on real workers: `make captures` makes them anew.

- **Live**: workers send digests of what they do while somebody watches, and only then; rows on the screen change in
  place, without a query. Polling stands behind it, and says so (`● poll`) where events cannot arrive.
- **What a key acts on** is a job id with the state that you saw. If it has changed meanwhile, nothing is done, and
  the screen says what it is now.
- **`u` undoes** the last action, on the jobs that nothing has happened to since. Every action is on screen 6, in
  `jobq audit`, and can be undone from there too.
- **Cheap**: every query is bounded, has a deadline, and waits for twenty times as long as the last one took.
- **Measured** (`make bench-tui`, 2026-11-21, PostgreSQL 15, 10 million finished jobs, two cores shared by everything,
  and busy): first frame 145 to 175 ms after the start of the process; 2 % of a core at rest, 7 % and 28 MB while 30,600
  jobs/s run; its sessions at most 4.2 % of a core on the server; from the end of a run to the new state on the screen
  129 ms at the median and 422 ms at the 99th percentile of 40, at 21,900 jobs/s in the same queue; no digest in
  5 s at 19,200 jobs/s when nobody watches.
- **Careful**: `--read-only` is enforced by the database session; a production context is painted from end to end and
  asks for typed confirmations; `ctrl+z` drops the LISTEN, which would keep VACUUM from its work.
- **Yours**: databases under names, `@` or `:ctx NAME` to go from one to another, and keys of your own, all in
  [one file](configuration.md#your-own-settings). The sixteen colours are your terminal's; on light and on dark ground
  jobq picks those that can be read, `--theme light`, `dark` or `mono` and `:theme` choose, and `NO_COLOR` or `CLICOLOR=0`
  means none. What a colour says, a word or a mark says too.
- **In lists**: `s` sorts by what an index has, `S` turns it around; `space`, `v` and `*` mark; `w` shows other columns, `T`
  times in UTC; `[` and `]` go through what you have looked at; in a job, `/` searches the output and `n` and `N` go on.
  `M` takes the mouse.
- **Without looking**: the terminal's cursor is on the selected row, for readers and magnifiers. `--plain` tells the screen
  line by line and takes a command a line: the number of a row, `/` and a filter, a key or a command's name; `help` lists
  them. `--reduce-motion` draws at most once a second.
- Below 60x15 it says so; `--ascii` and any size above that work. `jobq tui --print overview --size 80x24` writes one
  frame, for documents and bug reports.
END
capture() { # title, size, keys…
  local title=$1 size=$2; shift 2
  tmux -S "$scratch/tmux" -f /dev/null new-session -d -x "${size%x*}" -y "${size#*x}" \
    env TERM=screen-256color LC_ALL=C.UTF-8 USER=ana "$jobq" tui --database-url "$DATABASE_URL" --context staging
  sleep 1.5
  for key in "$@"; do
    case $key in
    text:*) tmux -S "$scratch/tmux" send-keys -l "${key#text:}" ;;
    *) tmux -S "$scratch/tmux" send-keys "$key" ;;
    esac
    sleep 0.7
  done
  sleep 1.5
  tmux -S "$scratch/tmux" capture-pane -p | sed 's/ *$//' >"$scratch/frame"
  { printf '\n## %s, %s\n\n```\n' "$title" "$size"; cat "$scratch/frame"; printf '```\n'; } >>"$page"
  tmux -S "$scratch/tmux" kill-server
  sleep 0.3
}
for size in 120x35 80x24; do
  capture Overview $size
  [ $size = 120x35 ] && cp "$scratch/frame" "$scratch/readme"
  capture 'Jobs, filtered and marked' $size 2 / 'text:state:failed queue:email kind:Send*' Enter j Space Space
  capture 'A job that has failed' $size 2 / 'text:state:failed' Enter Enter
  capture 'A job that runs' $size : "text:job $report" Enter
  capture Queues $size 3 j
  capture Workers $size 4
  [ $size = 120x35 ] && capture 'Requeued, undone, requeued' $size 2 / 'text:state:failed' Enter r u r
  capture Audit $size 6
  capture 'Before something is done to many' $size 2 / 'text:state:failed queue:email' Enter A r
  capture 'What can be copied' $size 2 y
  capture Help $size '?'
done
python3 - "$scratch/readme" <<'END'
import re, sys
frame = open(sys.argv[1]).read().rstrip("\n")
lines = [line for line in frame.split("\n")]
page = open("README.md").read()
block = "<!-- screen -->\n```\n" + "\n".join(lines) + "\n```\n<!-- /screen -->"
page = re.sub(r"<!-- screen -->.*?<!-- /screen -->", lambda m: block, page, flags=re.S)
open("README.md", "w").write(page)
END
echo "wrote $page and the screen in README.md"
