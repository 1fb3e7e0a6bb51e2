"""Adds jobs with psycopg 3: one, many, at most one of a key, and one in a transaction."""

import json
import os

import psycopg

with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
    # One job. The answer is its id.
    job = connection.execute(
        "select jobq.enqueue('resize-python', args => %s::jsonb, queue => 'images')", (json.dumps({"file": "a.png"}),)
    ).fetchone()[0]
    print("job", job)

    # Many in one statement.
    jobs = [{"kind": "resize-python", "args": {"file": name}} for name in ("b.png", "c.png")]
    connection.execute("select id from jobq.enqueue_many(%s::jsonb)", (json.dumps(jobs),))

    # At most one unfinished job with this key: the second call returns the first one's id.
    for _ in range(2):
        connection.execute("select jobq.enqueue('resize-python', args => '{\"file\": \"d.png\"}', unique_key => 'd.png')")

    # The job exists if the transaction commits, and only then.
    for commit in (True, False):
        with connection.transaction(force_rollback=not commit):
            connection.execute("insert into public.picture (language, file) values ('python', 'e.png')")
            connection.execute("select jobq.enqueue('resize-python', args => '{\"file\": \"e.png\"}')")
