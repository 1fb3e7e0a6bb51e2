#!/usr/bin/env bash
# Prints the program of the PgBouncer that another release of Debian has: pgbouncer.sh RELEASE, such as sid. Its package would
# need that release's libraries, so it is built here from Debian's source, in bin/pgbouncer, or for root where other users can run it. What
# is built is kept; what is not there yet needs the network, a C compiler, and to be root if libevent-dev is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=$1
folder=$PWD/bin/pgbouncer/$release
[ "$(id -u)" != 0 ] || folder=/var/cache/jobq-matrix/pgbouncer-$release
if [ ! -x "$folder/pgbouncer" ]; then
  umask 022
  rm -rf "$folder" && mkdir -p "$folder"/{lists/partial,source}
  {
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" > "$folder/sources.list"
    apt=(-qq -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$folder/lists" -o APT::Sandbox::User=root)
    timeout -k 10 180 apt-get "${apt[@]}" update
    cd "$folder/source"
    timeout -k 10 180 apt-get "${apt[@]}" --download-only source pgbouncer
    tar xf pgbouncer_*.orig.tar.*
    cd pgbouncer-*/
    pkg-config --exists libevent || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libevent-dev; }
    ./configure --without-cares --without-pam --without-systemd
    make -j2 pgbouncer
  } >&2
  mv pgbouncer "$folder/pgbouncer" && rm -rf "$folder/source" "$folder/lists"
fi
"$folder/pgbouncer" --version >/dev/null
echo "$folder/pgbouncer"
