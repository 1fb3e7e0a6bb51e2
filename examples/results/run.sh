#!/bin/sh
# Programs that wait for jobs: run.sh shell|python|node|ruby|java ... PYTHON says which
# Python has psycopg, if it is not python3. For Java, JDBC_URL is the database and
# CLASSPATH has the driver.
set -eu
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- shell

await() {
  case $language in
    shell) sh wait.sh "$@" ;;
    python) "${PYTHON:-python3}" wait.py "$@" ;;
    node) NODE_PATH=../complete/node_modules node wait.cjs "$@" ;;
    ruby) ruby wait.rb "$@" ;;
    java) CLASSPATH=${CLASSPATH:-/usr/share/java/postgresql.jar} java Wait.java "$@" ;;
  esac
}

# later adds a job that does not start for a year.
later() { psql "$DATABASE_URL" -XAtc "select jobq.enqueue('resize', queue => 'images', run_at => now() + interval '1 year')"; }

jobq worker --config jobq.yaml --queue images=2 --log-level error &
worker=$!
trap 'kill $worker 2>/dev/null || true' EXIT

for language; do
  echo "$language:"
  broken=$(jobq enqueue broken --queue images)
  cancelled=$(later)
  jobq cancel "$cancelled" > /dev/null
  late=$(later)

  # psql hears nothing. The others look once, and then hear it: their next look would be at their limit.
  if [ "$language" = shell ]; then
    await "$(jobq enqueue resize '{"at": "once"}' --queue images)"
  else
    began=$(date +%s)
    PAUSE=3600 LIMIT=300 await "$(jobq enqueue resize --queue images)"
    [ $(($(date +%s) - began)) -lt 300 ] || echo "$language was not notified: it has looked at the end of its limit"
  fi
  await "$broken" "$cancelled" 4711
  LIMIT=1 await "$late"
done
