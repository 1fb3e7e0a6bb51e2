import json
import subprocess


def wait(job):
    """The exit code of jobq wait, and the result or the error of the job."""
    ended = subprocess.run(["jobq", "wait", str(job), "--timeout", "60s"], capture_output=True, text=True)
    return ended.returncode, json.loads(ended.stdout) if ended.returncode == 0 else ended.stderr


def test_a_picture(database, worker):
    job = database.execute("select jobq.enqueue('resize', args => '{\"file\": \"cat.jpg\"}')").fetchone()[0]
    assert wait(job) == (0, {"width": 640})


def test_no_picture(database, worker):
    job = database.execute("select jobq.enqueue('resize', args => '{\"file\": \"cat.txt\"}', max_attempts => 1)").fetchone()[0]
    code, error = wait(job)
    assert code == 7 and "not a JPEG: cat.txt" in error
