#!/bin/sh
# An order as a durable script: each of its steps happens once, although the script is
# killed after each. `set -e` ends it when a sleep, or a wait for an event, has suspended the job.
set -eu

# killed_in kills this script in its run of that attempt, as a crash would.
killed_in() { [ "$JOBQ_ATTEMPT" != "$1" ] || kill -9 $$; }

receipt=$(jobq job step charge -- sh -c 'echo charged >> "$LEDGER"; echo "receipt-$JOBQ_JOB_ID"')
killed_in 1
jobq job sleep 1s
killed_in 2
payment=$(jobq job wait-event "paid order $JOBQ_JOB_ID" --timeout 1d)
killed_in 3
jobq job step ship -- sh -c 'echo "shipped for $1" >> "$LEDGER"' sh "$payment"
killed_in 4
echo "order done in attempt $JOBQ_ATTEMPT: $receipt"
