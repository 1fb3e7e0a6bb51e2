#!/usr/bin/env bash
# Follows docs/deploy.md on a machine with systemd, from the binary to an alert that fires: trial.sh JOBQ.
#
# The machine is this one's root folder under an overlay, with namespaces of its own and a real systemd as
# process 1: nothing here is changed, and nobody outside can be reached. The commands of the page's blocks are run as they
# stand there. Needs root, Linux with overlayfs and cgroup v2, systemd, PostgreSQL of Debian, curl, jq and apt.
# It takes two minutes, and ten more with --ten-minutes, which leaves the alert rules as they are: else they wait for 20 s.
set -euo pipefail
self=$(realpath "$0")
if [ "${1:-}" != --inside ]; then
  jobq=$(realpath "$1") wait=${2:-}
  [ "$(id -u)" = 0 ] || { echo 'namespaces need root' >&2; exit 1; }
  exec unshare --mount --propagation private "$self" --inside "$jobq" "$wait"
fi
jobq=$2 wait=$3
cd "$(dirname "$self")/.."
repository=$PWD
step() { printf '\n== %s\n' "$*"; }

# A folder that no other mount can see, and this machine's root below it.
work=/run/jobq-trial
mkdir -p $work && mount -t tmpfs tmpfs $work
mkdir $work/{upper,under,root}
mount -t overlay overlay -o lowerdir=/,upperdir=$work/upper,workdir=$work/under $work/root
root=$work/root
cgroup=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)/jobq-trial-$$
machine='' init=''
end() {
  if [ -n "$init" ]; then
    kill -KILL "$init" 2>/dev/null || true # and so all of its processes
    wait "$machine" 2>/dev/null || true
  fi
  for _ in $(seq 100); do
    find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [ -d "$cgroup" ] || break
    sleep 0.1
  done
  umount -R -l "$work" && rmdir "$work"
}
trap end EXIT
fail() {
  echo "FAILED: $*" >&2
  inside 'journalctl --no-pager -n 60; systemctl --no-pager --failed' >&2 || true
  exit 1
}

step 'the packages of Debian that the page names'
rm -f $root/var/lib/man-db/auto-update # which takes a minute
mount -t proc proc $root/proc && mount --rbind /dev $root/dev
printf '#!/bin/sh\nexit 101\n' > $root/usr/sbin/policy-rc.d && chmod +x $root/usr/sbin/policy-rc.d # start nothing yet
chroot $root sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus prometheus-alertmanager' \
  > $work/apt.log 2>&1 || { tail -n 20 $work/apt.log >&2; exit 1; }
rm $root/usr/sbin/policy-rc.d
systemctl -q --root=$root disable prometheus prometheus-alertmanager # the trial starts them when they have their files
echo 'ARGS="--cluster.listen-address="' > $root/etc/default/prometheus-alertmanager # one by itself, on a machine without a network
umount -R $root/dev $root/proc

step 'the machine starts'
cp "$jobq" $root/root/jobq
mkdir -p $root/root/release/prometheus # as the archive of a release, .goreleaser.yaml
cp -r deploy/systemd sql/roles.sql $root/root/release/
cp "$jobq" $root/root/release/jobq
cp deploy/prometheus/jobq.rules.yaml $root/root/release/prometheus/
[ "$wait" = --ten-minutes ] || sed -i 's/for: [0-9]*m/for: 20s/' $root/root/release/prometheus/jobq.rules.yaml
# Units of this machine that are not of the trial, and that would look for its hardware.
for unit in getty.target systemd-timesyncd systemd-udevd systemd-udev-trigger systemd-logind systemd-networkd systemd-resolved networking \
  apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer prometheus-node-exporter pgbouncer; do
  ln -sf /dev/null "$root/etc/systemd/system/${unit%.service}$(case $unit in *.timer | *.target) ;; *) echo .service ;; esac)"
done
: > $root/etc/fstab
rm -f $root/etc/machine-id && : > $root/etc/machine-id
mkdir -p "$cgroup"
# shellcheck disable=SC2016 # the inner shell expands
unshare --pid --fork --uts --ipc --net --mount --propagation private bash -euc '
  echo $$ > "$1/cgroup.procs"
  exec unshare --cgroup bash -euc '\''
    root=$1
    hostname jobq-trial
    ip link set lo up
    mount -t proc proc $root/proc
    mount -t sysfs -o ro sysfs $root/sys
    mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs $root/run
    mount -t tmpfs tmpfs $root/tmp
    mount -t tmpfs -o mode=755 tmpfs $root/dev
    mkdir $root/dev/{pts,shm}
    for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
      set -- $node
      mknod -m 666 $root/dev/$1 c $2 $3
    done
    mount -t devpts -o newinstance,ptmxmode=666,mode=620 devpts $root/dev/pts
    ln -s pts/ptmx $root/dev/ptmx
    ln -s /proc/self/fd $root/dev/fd
    cd $root # and not chroot, in which units cannot have users of their own (PrivateUsers)
    mkdir .before && pivot_root . .before
    exec env -i container=jobq-trial PATH=/usr/sbin:/usr/bin:/sbin:/bin sh -c "umount -l /.before && rmdir /.before; exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=journal"
  '\'' init "$2"
' unshared "$cgroup" $root > $work/console 2>&1 &
machine=$!
for _ in $(seq 100); do
  init=$(pgrep -P "$machine" | head -n 1 || true)
  [ -n "$init" ] && [ "$(cat "/proc/$init/comm" 2>/dev/null)" = systemd ] && break
  sleep 0.1
done
[ -n "$init" ] || { cat $work/console >&2; exit 1; }
# inside runs a command in the machine, as root, in the folder of the release, and export_ keeps a variable for the next ones.
environment=()
inside() {
  nsenter --target "$init" --all --root --wdns=/root/release env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${environment[@]}" bash -euo pipefail -c "$1"
}
await() { # await WHAT SECONDS COMMAND
  local give_up=$((SECONDS + $2))
  until inside "$3" >/dev/null 2>&1; do
    [ $SECONDS -lt $give_up ] || fail "waited $2 s for $1"
    sleep 0.5
  done
}
await 'systemd' 120 '[ "$(systemctl is-system-running)" = running ]'
inside 'systemctl --version | head -n 1'

# block prints the indented block of the page that has a line which begins so, from that line on.
block() {
  awk -v from="$1" 'index($0, "    " from) == 1 { on = 1 } on && !/^    / { exit } on { print substr($0, 5) }' "$repository/docs/deploy.md" | grep . ||
    { echo "docs/deploy.md has no block with: $1" >&2; exit 1; }
}
follow() {
  step "$1"
  local commands
  commands=$(block "$2")
  sed 's/^/  $ /' <<< "$commands"
  inside "$commands" || fail "$1"
}

step 'a server, and the database of the owner'
inside 'pg_lsclusters -h | while read -r version name rest; do pg_dropcluster --stop "$version" "$name"; done
  version=$(ls /usr/lib/postgresql | sort -V | tail -n 1)
  pg_createcluster --encoding UTF8 --locale C.UTF-8 "$version" main -- --auth-local=trust --auth-host=trust >/dev/null
  systemctl daemon-reload && systemctl start "postgresql@$version-main"
  systemctl is-active "postgresql@$version-main"'
await 'the server' 60 'psql -h 127.0.0.1 -U postgres -c "select 1"'
inside 'psql -q -h 127.0.0.1 -U postgres -c "create role owner login createrole" -c "create database app owner owner"'

# The page names a server of its own, with TLS.
block 'export DATABASE_URL=' | grep -q db-1.example.com
environment=(DATABASE_URL=postgres://owner@127.0.0.1/app)
step '2. The database'
inside 'install -m 755 jobq /usr/local/bin/jobq'
commands=$(block 'jobq migrate up')
sed 's/^/  $ /' <<< "$commands"
inside "$commands" >/dev/null
psql_file=$(block 'create role app_web')
sed 's/^/  =# /' <<< "$psql_file"
inside "psql -q -v ON_ERROR_STOP=1 \"\$DATABASE_URL\" <<'SQL'
$psql_file
SQL"

inside "cat > jobq.yaml <<'Y'
kinds:
  hello: {command: 'sed s/^/hello,/'}
  slow: {command: [sh, -c, 'touch /var/lib/jobq/\$JOBQ_JOB_ID.\$JOBQ_ATTEMPT; sleep 8'], grace: 3s}
Y
echo DATABASE_URL=postgres://app_worker@127.0.0.1/app > environment
echo DATABASE_URL=postgres://app_eyes@127.0.0.1/app > metrics.environment"
follow '3. A worker: systemd' 'useradd --system'
await 'a worker that is ready' 60 'curl -fsS http://127.0.0.1:9400/readyz'
inside 'systemctl --no-pager --plain list-units "jobq-*"; systemd-analyze security --no-pager jobq-worker jobq-metrics 2>/dev/null | tail -n 3 || true'
inside 'journalctl --no-pager -o cat -u jobq-worker | head -n 8; [ "$(stat -c %U /proc/$(systemctl show -P MainPID jobq-worker))" = jobq ]'

environment=(DATABASE_URL=postgres://owner@127.0.0.1/app)
step '4. Check that it works'
commands=$(block 'jobq enqueue hello '"'" | grep -v 'jobq tui')
sed 's/^/  $ /' <<< "$commands"
await 'the first job' 1 true
inside "$(head -n 1 <<< "$commands")"
await 'the end of the job' 60 'jobq show 1 --json | jq -e ".state == \"completed\""'
inside "$(tail -n +2 <<< "$commands")"

step 'A worker that is killed is started again, and its job runs again'
slow=$(inside 'jobq enqueue slow' | grep -oE '[0-9]+' | head -n 1)
await 'the run' 60 "[ -e /var/lib/jobq/$slow.1 ]"
before=$(inside 'systemctl show -P MainPID jobq-worker')
inside "kill -KILL $before"
await 'another worker' 60 "pid=\$(systemctl show -P MainPID jobq-worker); [ \$pid != 0 ] && [ \$pid != $before ] && systemctl is-active jobq-worker"
await 'the second run' 120 "[ -e /var/lib/jobq/$slow.2 ] && jobq show $slow --json | jq -e '.state == \"completed\"'"
inside "echo restarts: \$(systemctl show -P NRestarts jobq-worker); jobq show $slow | head -n 12"

step 'systemctl stop lets a job that runs end'
slow=$(inside 'jobq enqueue slow' | grep -oE '[0-9]+' | head -n 1)
await 'the run' 60 "[ -e /var/lib/jobq/$slow.1 ]"
inside "systemctl stop jobq-worker; systemctl show -P Result jobq-worker; jobq show $slow --json | jq -e '.state == \"completed\" and .attempts == 0' >/dev/null"
inside 'journalctl --no-pager -o cat -u jobq-worker | tail -n 4; systemctl start jobq-worker'
await 'a worker that is ready' 60 'curl -fsS http://127.0.0.1:9400/readyz'

step 'A worker that is drained stays down until systemctl start'
inside 'jobq workers drain "$(jobq workers --json | jq -r ".[] | select(.pid == $(systemctl show -P MainPID jobq-worker)).id")"'
await 'its end' 60 '[ "$(systemctl is-active jobq-worker)" = inactive ]'
inside 'systemctl show -P Result jobq-worker; systemctl start jobq-worker'
await 'a worker that is ready' 60 'curl -fsS http://127.0.0.1:9400/readyz'

follow '5. Metrics and an alert' 'curl -fsS http://127.0.0.1:9400/readyz'
step 'Prometheus, with the lines of the page'
{ block 'scrape_configs: ' && printf 'global: {scrape_interval: 5s, evaluation_interval: 5s}\nalerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:9093"]}]}]}\n'; } |
  grep -v '^install\|^promtool\|^systemctl' > $work/prometheus.yml
sed 's/^/  /' $work/prometheus.yml
inside "cat > /etc/prometheus/prometheus.yml" < $work/prometheus.yml
# Who is told of alerts: a program that keeps what it is sent.
inside 'cat > /etc/prometheus/alertmanager.yml <<Y
route: {receiver: file, group_wait: 1s}
receivers: [{name: file, webhook_configs: [{url: "http://127.0.0.1:9999/", send_resolved: true}]}]
Y
cat > /root/receive.py <<Y
import http.server, json
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        for alert in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"]:
            print(alert["status"], alert["labels"]["alertname"], alert["labels"].get("queue"), file=open("/root/received", "a"))
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", 9999), Receiver).serve_forever()
Y
systemd-run -q --unit=receive python3 /root/receive.py
systemctl start prometheus prometheus-alertmanager'
await 'Prometheus' 60 'curl -fsS http://127.0.0.1:9090/-/ready'
follow 'the rules' 'install -m 644 prometheus/jobq.rules.yaml'
await 'the rules in Prometheus' 60 'curl -fsS http://127.0.0.1:9090/api/v1/rules | jq -e "[.data.groups[].rules[].name] | index(\"JobqQueueWithoutWorker\")"'
await 'both targets' 60 'curl -fsS http://127.0.0.1:9090/api/v1/targets | jq -e "[.data.activeTargets[].health] == [\"up\", \"up\"]"'
nobody=$(inside "$(block 'jobq enqueue hello --queue nobody')" | grep -oE '[0-9]+' | head -n 1)
began=$SECONDS
await 'the alert' 1200 'curl -fsS http://127.0.0.1:9090/api/v1/alerts | jq -e ".data.alerts[] | select(.labels.alertname == \"JobqQueueWithoutWorker\" and .state == \"firing\")"'
echo "the alert fires after $((SECONDS - began)) s:"
inside "$(block 'curl -fsS http://127.0.0.1:9090/api/v1/alerts')"
await 'word of it' 120 'grep -q "^firing JobqQueueWithoutWorker nobody" /root/received'
inside "jobq cancel $nobody" >/dev/null
await 'the end of the alert' 300 'curl -fsS http://127.0.0.1:9090/api/v1/alerts | jq -e "[.data.alerts[] | select(.labels.alertname == \"JobqQueueWithoutWorker\")] == []"'
await 'word of its end' 600 'grep -q "^resolved JobqQueueWithoutWorker nobody" /root/received'
echo 'what the Alertmanager has sent on:'
inside 'cat /root/received'

step 'What the doctor of the trial says'
inside 'jobq doctor' || true
echo && echo 'docs/deploy.md works on a machine with systemd.'
