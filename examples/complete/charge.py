"""Charges a customer, and completes the job in the same transaction: both or neither.

Needs psycopg 3 (apt-get install python3-psycopg, or pip install psycopg). With "die" in
the args, the first run is killed before or after its commit.
"""

import json
import os
import signal
import sys

import psycopg

args = json.load(sys.stdin)
job, token = int(os.environ["JOBQ_JOB_ID"]), os.environ["JOBQ_RUN_TOKEN"]
die = args.get("die") if os.environ["JOBQ_ATTEMPT"] == "1" else None

with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    # Commits at the end of the block, or rolls back when it is left by an exception: above
    # all by that of jobq.complete, SQLSTATE JQ005, when another run has the job.
    with connection.transaction():
        connection.execute("insert into public.payment (kind, job) values ('python', %s)", (job,))
        connection.execute("select jobq.complete(%s, %s, %s::jsonb)", (job, token, json.dumps({"paid": True})))
        if die == "before":
            os.kill(os.getpid(), signal.SIGKILL)

if die == "after":
    os.kill(os.getpid(), signal.SIGKILL)
print("charged")
