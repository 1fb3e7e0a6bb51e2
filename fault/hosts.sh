#!/usr/bin/env bash
# Cuts a worker's host off from the server, and heals the network again: hosts.sh JOBQ.
# Two network namespaces are the hosts. Cut off means that each packet is dropped, both
# ways, and that nobody is told. Needs root, iproute2, jq, psql and PostgreSQL's programs.
#
# Two jobs run on host-a when it is cut off: one goes on, and one ends meanwhile, with a
# result. host-b begins both again. What must hold:
#   - the run that goes on has been stopped before host-b begins the job
#   - the result that host-a has when the network is back, while the job runs on host-b, is
#     not stored
#   - host-a then works again
# The first time the network heals as soon as host-b has begun both jobs, the second time
# after the server has given up host-a's sessions.
set -euo pipefail
jobq=$(realpath "$1")
bin=${JOBQ_PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)}
[ "$(id -u)" = 0 ] || { echo 'network namespaces need root' >&2; exit 1; }

net=10.213.7 lease=5s
work=$(mktemp -d /tmp/jobq-hosts-XXXXXX)
bridge=jqh$$
declare -A worker=()
clean() {
  for pid in "${worker[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  as_postgres "$bin/pg_ctl" -D "$work/data" -m immediate stop >/dev/null 2>&1 || true
  for host in a b; do ip netns del "$bridge-$host" 2>/dev/null || true; done
  ip link del "$bridge" 2>/dev/null || true
  rm -rf "$work"
}
trap clean EXIT
as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
fail() {
  echo "FAILED: $*" >&2
  tail -n 40 "$work"/worker-*.log "$work/runs" >&2
  sql "select application_name, client_addr, now() - backend_start, state, now() - state_change, left(query, 60) from pg_stat_activity where client_addr is not null" >&2
  exit 1
}
now() { date +%s%N; }
since() { awk -v from="$1" -v to="${2:-$(now)}" 'BEGIN { printf "%.1f s", (to - from) / 1e9 }'; }
await() { # await WHAT COMMAND...
  local what=$1 give_up=$((SECONDS + 120))
  shift
  until "$@"; do
    [ $SECONDS -lt $give_up ] || fail "waited two minutes for $what"
    sleep 0.05
  done
}

# The hosts, on one network with the server.
ip link add "$bridge" type bridge
ip addr add "$net.1/24" dev "$bridge"
ip link set "$bridge" up
number=2
for host in a b; do
  ip netns add "$bridge-$host"
  ip link add "$bridge$host" type veth peer name eth0 netns "$bridge-$host"
  ip link set "$bridge$host" master "$bridge" up
  ip -n "$bridge-$host" addr add "$net.$number/24" dev eth0
  ip -n "$bridge-$host" link set eth0 up
  ip -n "$bridge-$host" link set lo up
  number=$((number + 1))
done
# cut drops what either end of host-a's cable sends: no packet fits into a queue of one byte.
cut() {
  tc qdisc add dev "${bridge}a" root bfifo limit 1
  tc -n "$bridge-a" qdisc add dev eth0 root bfifo limit 1
}
heal() {
  tc qdisc del dev "${bridge}a" root
  tc -n "$bridge-a" qdisc del dev eth0 root
}

# The server.
chmod 755 "$work"
mkdir "$work/data" "$work/socket"
chown postgres "$work/data" "$work/socket"
as_postgres "$bin/initdb" -D "$work/data" -A trust --no-sync >/dev/null
echo "host all all $net.0/24 trust" >> "$work/data/pg_hba.conf"
as_postgres "$bin/pg_ctl" -D "$work/data" -l "$work/data/log" -w \
  -o "-c listen_addresses=$net.1 -c unix_socket_directories=$work/socket -c fsync=off" start >/dev/null
export DATABASE_URL="postgres:///postgres?host=$work/socket&user=postgres"
export XDG_CONFIG_HOME=/nowhere
sql() { psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 -c "$1"; }
"$jobq" migrate up >/dev/null

# What a job does, on either host: it goes on until it is told to end. On host-a "short" ends,
# with a result, when the host is cut off, and "long" goes on for as long as nobody stops it.
cat > "$work/run.sh" <<RUN
#!/bin/sh
host=\$(hostname)
echo "begin \$host \$JOBQ_JOB_ID \$(date +%s%N)" >> $work/runs
until [ -e $work/free ] || [ \$host = host-a -a \$JOBQ_KIND = short -a -e $work/cut ]; do
  date +%s%N >> $work/alive-\$host-\$JOBQ_JOB_ID
  sleep 0.05
done
printf '{"result": "%s"}\n' \$host >&3
echo "end \$host \$JOBQ_JOB_ID \$(date +%s%N)" >> $work/runs
RUN
chmod +x "$work/run.sh"
start() { # start HOST
  # A name of its own, since a worker recovers at once what dead ones of its host have left.
  DATABASE_URL="postgres://postgres@$net.1/postgres" ip netns exec "$bridge-$1" unshare --uts sh -c \
    "hostname host-$1; exec '$jobq' worker --run long=$work/run.sh --run short=$work/run.sh --lease $lease --scan 1s --log-format json" \
    >> "$work/worker-$1.log" 2>&1 &
  worker[$1]=$!
}
stop() {
  kill -TERM "${worker[$1]}"
  wait "${worker[$1]}" || fail "the worker of host-$1 ended with $?"
  unset "worker[$1]"
}
began() { grep -q "^begin host-$1 $2 " "$work/runs" 2>/dev/null; }
moment() { awk -v what="$1" -v host="host-$2" -v job="$3" '$1 == what && $2 == host && $3 == job { print $4 }' "$work/runs"; }
# Sessions of host-a's pool stay until the server's own keepalives end them. They hold no lock.
given_up() { sql_true "select count(*) = 0 from pg_stat_activity where client_addr = '$net.2' and application_name in ('jobq-worker', 'jobq-listen', 'jobq-janitor')"; }
sent() { completed "$1" || grep -q '"msg":"result refused.*"job_id":'"$1," "$work/worker-a.log"; }
completed() { [ "$(sql "select state from jobq.result($1)")" = completed ]; }

# round WHEN: what is awaited before the network heals.
round() {
  rm -f "$work/cut" "$work/free"
  local long short cut_at job
  long=$("$jobq" enqueue long) short=$("$jobq" enqueue short)
  for job in $long $short; do await "job $job on host-a" began a "$job"; done
  start b
  await 'the worker of host-b' sql_true "select count(*) = 2 from jobq.worker"
  cut
  cut_at=$(now)
  touch "$work/cut"
  for job in $long $short; do await "job $job on host-b" began b "$job"; done
  local alive reaped stopped dropped=-
  alive=$(tail -n 1 "$work/alive-host-a-$long")
  [ "$alive" -lt "$(moment begin b "$long")" ] || fail "job $long was alive on host-a when host-b began it"
  stopped=$(since "$cut_at" "$alive") reaped=$(since "$cut_at" "$(moment begin b "$long")")
  if [ "$1" = 'sessions given up' ]; then
    await "the server to give up host-a's sessions" given_up
    sql_true "select count(*) = 0 from pg_locks l join pg_stat_activity a using (pid) where a.client_addr = '$net.2'" || fail "a session of host-a's holds a lock"
    dropped=$(since "$cut_at")
  fi
  local cut_for healed_at next
  cut_for=$(since "$cut_at")
  heal
  healed_at=$(now)
  await "host-a to send the result of job $short" sent "$short"
  touch "$work/free"
  for job in $long $short; do await "job $job on host-b" completed "$job"; done
  stop b # what comes now is for host-a
  next=$("$jobq" enqueue short)
  await "job $next on host-a, after the network was back" completed "$next"
  local back
  back=$(since "$healed_at" "$(moment begin a "$next")")
  for job in $long $short; do
    [ "$(sql "select result from jobq.result($job)")" = '"host-b"' ] || fail "job $job has a result of host-a"
    [ "$(grep -c " $job " <(grep '^begin' "$work/runs"))" = 2 ] || fail "job $job did not run twice"
  done
  sql_true "select bool_and(a.outcome = 'lost') from jobq.attempt a where a.job_id in ($long, $short) and a.outcome <> 'completed'" || fail 'runs on host-a are not lost'
  echo "| $1 | $cut_for | $stopped | $reaped | $dropped | $back |"
}
sql_true() { [ "$(sql "$1")" = t ]; }

start a
await 'the worker of host-a' sql_true 'select count(*) = 1 from jobq.worker'
echo '| network back when | cut for | run stopped on host-a after | begun on host-b after | sessions given up after | host-a works again after |'
echo '|---|---|---|---|---|---|'
round 'both jobs begun'
round 'sessions given up'
stop a
