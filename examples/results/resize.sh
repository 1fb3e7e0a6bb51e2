#!/bin/sh
# The handler. Its job ends when somebody waits for it, so that only a notification, or a
# later look, can tell: with {"at": "once"}, at once.
set -eu
case $(cat) in
  *once*) ;;
  *)
    until [ "$(psql "$DATABASE_URL" -XAtc "select count(*) from jobq.awaited where job_id = $JOBQ_JOB_ID")" = 1 ]; do sleep 0.2; done
    ;;
esac
jobq job result '{"width": 640}'
