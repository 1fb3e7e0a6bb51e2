"""Counts words, as a jobq handler: standard library only.

Standard input has the job's args as JSON. What happens is told on file
descriptor 3, one JSON object a line. The exit code decides: 0 completes the
job, 65 fails it for good, anything else is a failed attempt.
"""

import json
import os
import sys

EX_DATAERR = 65

control = os.fdopen(int(os.environ["JOBQ_CONTROL_FD"]), "w", buffering=1)


def tell(**message):
    print(json.dumps(message), file=control)


def main():
    args = json.load(sys.stdin)
    if "text" not in args:
        print("args have no text", file=sys.stderr)
        return EX_DATAERR

    words = args["text"].split()
    # What an earlier run has saved, if there was one.
    saved = json.loads(os.environ.get("JOBQ_CHECKPOINT") or '{"at": 0, "counts": {}}')
    counts = saved["counts"]
    if saved["at"]:
        print(f"attempt {os.environ['JOBQ_ATTEMPT']} goes on at word {saved['at']}")

    for at in range(saved["at"], len(words)):
        if at == args.get("fail_at") and os.environ["JOBQ_ATTEMPT"] == "1":
            print("something broke", file=sys.stderr)
            return 1
        counts[words[at]] = counts.get(words[at], 0) + 1
        tell(progress=100 * (at + 1) / len(words), stage="count", message=words[at])
        tell(checkpoint={"at": at + 1, "counts": counts})

    tell(result=counts)
    return 0


sys.exit(main())
