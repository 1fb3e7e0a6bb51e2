"""Waits for jobs with psycopg 3: wait.py JOB..."""

import json
import os
import random
import select
import sys
import time

import psycopg


class NotCompleted(Exception):
    """The job has failed, or was cancelled."""


def wait(connection, job, limit=60, pause=1):
    """Returns the result of a job that has completed, None if it gave none.

    The connection commits each statement, and nobody else uses it meanwhile. A notification
    is a hint: the job is looked at without one too, after a pause that grows to 10 s.
    """
    me, heard = random.getrandbits(62), []
    hear = heard.append
    connection.add_notify_handler(hear)
    channel = connection.execute("select jobq.channel('ended')").fetchone()[0]
    connection.execute(f"listen {channel}")
    until = time.monotonic() + limit
    try:
        while True:
            # For a minute from now on, the end of the job is notified. What was before is not: look.
            heard.clear()
            connection.execute("select jobq.await(%s, %s::bigint[], '{}', '1 minute')", (me, [job]))
            row = connection.execute("select state::text, result, error from jobq.result(%s)", (job,)).fetchone()
            if row is None:
                raise LookupError(f"there is no job {job}")
            state, result, error = row
            if state == "completed":
                return result
            if state in ("failed", "cancelled"):
                raise NotCompleted(f"job {job} is {state}: {error or 'no reason given'}")
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job} has not ended in {limit:g} s: it is {state}")
            if not heard:
                select.select([connection], [], [], min(pause, left))
            pause = min(pause * 2, 10)
    finally:
        connection.execute(f"unlisten {channel}")
        connection.execute("select jobq.await_end(%s)", (me,))
        connection.remove_notify_handler(hear)


with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    for job in sys.argv[1:]:
        try:
            result = wait(connection, int(job), float(os.environ.get("LIMIT", 60)), float(os.environ.get("PAUSE", 1)))
            print(f"job {job}: {json.dumps(result)}")
        except (NotCompleted, LookupError, TimeoutError) as problem:
            print(problem)
