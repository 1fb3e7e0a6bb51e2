import os
import subprocess
import uuid

import psycopg
import pytest

SERVER = os.environ["DATABASE_URL"]  # of a login that may create databases


def url(name):
    return psycopg.conninfo.make_conninfo(SERVER, dbname=name)


@pytest.fixture(scope="session")
def template():
    """A database with jobq's tables, made once. Make your own tables here too."""
    name = "template_" + uuid.uuid4().hex
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"create database {name} encoding 'UTF8' template template0")
        try:
            subprocess.run(["jobq", "migrate", "up", "--database-url", url(name)], check=True)
            yield name
        finally:
            server.execute(f"drop database {name} with (force)")


@pytest.fixture
def database(template, monkeypatch):
    """A database for each test, which DATABASE_URL names while it runs."""
    name = "test_" + uuid.uuid4().hex
    with psycopg.connect(SERVER, autocommit=True) as server:
        server.execute(f"create database {name} template {template}")
        monkeypatch.setenv("DATABASE_URL", url(name))
        monkeypatch.delenv("JOBQ_DATABASE_URL", raising=False)  # which comes before it
        try:
            with psycopg.connect(url(name), autocommit=True) as connection:
                yield connection
        finally:
            server.execute(f"drop database {name} with (force)")


@pytest.fixture
def worker(database):
    """A worker that runs as long as the test."""
    process = subprocess.Popen(["jobq", "worker", "--run", "resize=python3 resize.py"])
    yield process
    process.terminate()
    process.wait()
