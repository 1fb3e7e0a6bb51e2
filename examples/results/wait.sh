# Waits for jobs with psql, which cannot listen: it looks, at first after 1 second, then
# after 2, 4, 8 and 10. `jobq wait` does the same at once. wait.sh JOB...
set -eu
sql() { psql "$DATABASE_URL" -qAtX -v ON_ERROR_STOP=1 "$@"; }

# wait_for JOB SECONDS prints the result of a job that has completed. Of any other end it
# tells on standard error, and its exit code says which: that of `jobq wait`.
wait_for() {
  left=$2 pause=1
  while :; do
    ended=$(sql -v job="$1" <<'SQL'
select format('%s %s', state, coalesce(result::text, error, '')) from jobq.result(:'job');
SQL
    ) || return 1
    case $ended in
      'completed '*) echo "${ended#completed }"; return ;;
      'failed '*) echo "job $1 is $ended" >&2; return 7 ;;
      'cancelled '*) echo "job $1 is $ended" >&2; return 8 ;;
      '') echo "there is no job $1" >&2; return 3 ;;
    esac
    if [ "$left" -le 0 ]; then
      echo "job $1 has not ended in $2 s: it is ${ended%% *}" >&2
      return 9
    fi
    [ "$pause" -le "$left" ] || pause=$left
    sleep "$pause"
    left=$((left - pause)) pause=$((pause < 5 ? pause * 2 : 10))
  done
}

for job; do
  if result=$(wait_for "$job" "${LIMIT:-60}" 2>&1); then echo "job $job: $result"; else echo "$result"; fi
done
