#!/usr/bin/env bash
# Bars for computations on hosts that come and go, each in a fresh database:
#
#   bars.sh vanish    50 hosts vanish under 1,000 jobs of 30 s with max_attempts 1 and max_lost 20 (10 hosts of 20 slots at a time)
#   bars.sh broken    one host of two ends every program at once: how many of 1,000 jobs does it fail?
#   bars.sh notice    how long after SIGTERM a program hears of the drain
#   bars.sh cut       the database is away for CUT seconds (600) while programs run that freeze
#
# It needs jobq in PATH, jq, and root, since each host is a UTS namespace with a name of its own. JOBS and SECONDS_EACH
# make vanish smaller.
set -euo pipefail
bar=${1:?vanish, broken, notice or cut}
if [ "${2:-}" != inside ]; then
  exec jobq dev --ephemeral -- "$0" "$bar" inside
fi
folder=$(mktemp -d)
trap 'kill -KILL $(jobs -p) 2>/dev/null || true; rm -rf "$folder"' EXIT

# host NAME SLOTS COMMAND...: a worker on a host of that name; its pid is in $pid.
host() {
  local name=$1 slots=$2
  shift 2
  unshare --uts -- sh -c 'hostname "$0" && exec jobq worker "$@"' "$name" -q "default=$slots" --run "sim=$*" "${options[@]}" \
    >"$folder/$name.log" 2>&1 &
  pid=$!
}
options=()
# sweep COUNT OPTIONS...: adds the jobs.
sweep() {
  local count=$1
  shift
  (echo n; seq "$count") | jobq enqueue sim --csv - --tag sweep "$@" >"$folder/ids"
}

case $bar in
  vanish)
    sweep "${JOBS:-1000}" --max-attempts 1 --max-lost 20
    began=$SECONDS
    hosts=()
    for i in $(seq 10); do
      host "host-$i" 20 sleep "${SECONDS_EACH:-30}"
      hosts+=("$pid")
    done
    for i in $(seq 50); do
      sleep 3
      kill -9 "${hosts[0]}"
      hosts=("${hosts[@]:1}")
      host "host-$((10 + i))" 20 sleep "${SECONDS_EACH:-30}"
      hosts+=("$pid")
    done
    jobq wait --filter tag:sweep >/dev/null
    echo "after $((SECONDS - began)) s: $(jobq stats --filter tag:sweep)"
    jobq list tag:sweep --json --limit 1000 | jq -c '.jobs | {jobs: length, completed: map(select(.state == "completed")) | length,
      attempts: map(.attempts) | add, lost: map(.lost // 0) | add, most_lost: map(.lost // 0) | max}'
    ;;
  broken)
    sweep 1000 --max-attempts 1
    began=$SECONDS
    host broken 10 false
    host sound 10 sleep 0.2
    jobq wait --filter tag:sweep >/dev/null || true
    echo "after $((SECONDS - began)) s: $(jobq stats --filter tag:sweep)"
    ;;
  notice)
    cat >"$folder/run.sh" <<'END'
#!/usr/bin/env bash
trap 'date +%s%N >"$1/heard"; exit 75' TERM
: >"$1/up"
while :; do sleep 0.01; done
END
    chmod +x "$folder/run.sh"
    cat >"$folder/jobq.yaml" <<END
kinds:
  sim:
    command: ["$folder/run.sh", "$folder"]
    on_drain: tell
END
    for _ in 1 2 3 4 5; do
      rm -f "$folder/up" "$folder/heard"
      sweep 1
      jobq worker --config "$folder/jobq.yaml" >"$folder/log" 2>&1 &
      pid=$!
      until [ -e "$folder/up" ]; do sleep 0.05; done
      told=$(date +%s%N)
      kill -TERM "$pid"
      until [ -s "$folder/heard" ]; do sleep 0.01; done
      echo "heard after $((($(cat "$folder/heard") - told) / 1000000)) ms"
      wait "$pid" || true
      jobq cancel --filter tag:sweep --yes >/dev/null
    done
    ;;
  cut)
    cat >"$folder/run.sh" <<'END'
#!/usr/bin/env bash
echo "begun by $$" >>"$1/effects"
for _ in $(seq 300); do sleep 0.1; done
echo "done by $$" >>"$1/effects"
END
    chmod +x "$folder/run.sh"
    sweep 4 --max-attempts 1
    options=(--lock-lost freeze)
    host cut-1 2 "$folder/run.sh" "$folder"
    host cut-2 2 "$folder/run.sh" "$folder"
    until [ "$(grep -c begun "$folder/effects" 2>/dev/null)" = 4 ]; do sleep 0.1; done
    server=$(sed -n 's/.*host=\([^&]*\).*/\1/p' <<<"$JOBQ_DATABASE_URL" | sed 's|%2F|/|g')
    server=$(head -1 "${server%/run}/data/postmaster.pid")
    servers="$server $(pgrep -P "$server")"
    # shellcheck disable=SC2086
    kill -STOP $servers
    echo "stopped $(wc -w <<<"$servers") processes of the server"
    sleep "${CUT:-600}"
    # shellcheck disable=SC2086
    kill -CONT $servers
    jobq wait --filter tag:sweep >/dev/null
    jobq list tag:sweep --json | jq -c '.jobs | {completed: map(select(.state == "completed")) | length, attempts: map(.attempts) | add}'
    sort "$folder/effects" | cut -d' ' -f1 | uniq -c
    ;;
esac
