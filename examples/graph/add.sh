#!/bin/sh
# Adds up the results of the jobs for which this one has waited.
set -eu
words=$(psql "$DATABASE_URL" -AtXv ON_ERROR_STOP=1 -c "select sum(result::integer) from jobq.parents($JOBQ_JOB_ID)")
jobq job result "$words"
