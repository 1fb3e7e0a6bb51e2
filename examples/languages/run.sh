#!/bin/sh
# Programs that add jobs: run.sh shell|python|node|ruby|java ... PYTHON says which Python
# has psycopg, if it is not python3. For Java, JDBC_URL is the database and CLASSPATH
# has the driver.
set -eu
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- shell

psql "$DATABASE_URL" -qXc 'create table if not exists public.picture (language text not null, file text not null)'
for language; do
  case $language in
    shell) sh produce.sh ;;
    python) "${PYTHON:-python3}" produce.py ;;
    node) NODE_PATH=../complete/node_modules node produce.cjs ;;
    ruby) ruby produce.rb ;;
    java) CLASSPATH=${CLASSPATH:-/usr/share/java/postgresql.jar} java Produce.java ;;
  esac
  psql "$DATABASE_URL" -XAtc "select format('%s: jobs %s, pictures %s', '$language', string_agg(args->>'file', ' ' order by id),
      (select count(*) from public.picture where language = '$language'))
    from jobq.job where kind = 'resize-$language'"
done
