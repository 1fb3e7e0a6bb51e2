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

mkdir -p "$scratch/config/jobq"
cat >"$scratch/config/jobq/config.yaml" <<'END'
contexts:
  prod: {database_url: "postgres://app@db-1.example.com/app", color: red, read_only: true}
  staging: {database_url: "postgres://app@db-2.example.com/app", color: green}
END

if [ "$2" = recording ]; then # what has failed works now, and is to be requeued
  touch "$scratch/mended"
  (cd bench && XDG_CONFIG_HOME="$scratch/config" go run ./record -jobq "$jobq" -out ../docs/tui.svg)
  exit
fi

# What stands before the first screen is written by hand, and stays.
page=docs/tui.md
sed -i '/^## /,$d' "$page"
sed -i -e :a -e '/^\n*$/{$d;N;ba' -e '}' "$page"
capture() { # title, size, keys…
  local title=$1 size=$2; shift 2
  tmux -S "$scratch/tmux" -f /dev/null new-session -d -x "${size%x*}" -y "${size#*x}" \
    env TERM=screen-256color LC_ALL=C.UTF-8 USER=ana XDG_CONFIG_HOME="$scratch/config" "$jobq" tui --database-url "$DATABASE_URL" --context staging
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
# As many as a newcomer needs; what every screen looks like is in tui/testdata.
capture Overview 120x35
cp "$scratch/frame" "$scratch/readme"
capture 'Jobs, filtered and marked' 120x35 2 / 'text:state:failed queue:email kind:Send*' Enter j Space Space
capture 'A job that runs' 120x35 : "text:job $report" Enter
capture 'Errors' 80x24 6
capture 'Before something is done to many' 80x24 2 / 'text:state:failed queue:email' Enter A r
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
