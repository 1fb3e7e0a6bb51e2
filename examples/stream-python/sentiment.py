"""A handler that is kept from job to job: what takes long to load is loaded once.

One job a line on standard input, answers on standard output. Whatever else is
printed goes to standard error, which the worker keeps as the job's output.
"""

import json
import os
import sys

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # a print() anywhere, also in a library, is output and no answer

WORDS = {"good": 1, "great": 2, "bad": -1, "awful": -2}  # stands for a model of some gigabytes


def say(message):
    print(json.dumps(message), file=answers, flush=True)


def handle(job):
    text = job["args"].get("text")
    if not isinstance(text, str):
        return {"error": "args have no text", "discard": True}
    words = text.lower().split()
    score = 0
    for number, word in enumerate(words, 1):
        score += WORDS.get(word, 0)
        say({"progress": 100 * number / len(words), "stage": "score"})
    print(f"attempt {job['attempt']}: {len(words)} words", flush=True)
    return {"done": True, "result": {"score": score}}


for line in sys.stdin:  # ends when the worker closes it
    job = json.loads(line)
    try:
        answer = handle(job)
    except Exception as problem:  # the process lives on, the attempt has failed
        answer = {"error": repr(problem)}
    say({"id": job["id"], **answer})
