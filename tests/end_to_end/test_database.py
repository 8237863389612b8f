"""`tilewise db` as a user runs it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing

from tilewise.db.sql.schema import HEAD
from tilewise.db.sql.sql_store import open_store


def test_check_says_what_is_whole_and_what_is_not(tilewise):
    open_store(tilewise.database).close()
    health = tilewise.json("db", "check")
    assert (health["whole"], health["revision"], health["head"]) == (True, HEAD, HEAD)
    with closing(sqlite3.connect(tilewise.folder / "tiles.db")) as database:
        database.execute("DROP INDEX ix_trials_tally")
    done = tilewise("db", "check", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["whole"] is False
    done = tilewise("db", "check")
    assert (done.returncode, done.stderr) == (1, "")
    assert "schema       FAILED\n    the index ix_trials_tally is missing\n" in done.stdout


def test_upgrade_says_what_it_did(tilewise):
    (tilewise.folder / "tiles.db").touch()
    done = tilewise("db", "upgrade")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith(f"tiles.db: schema {HEAD}, was empty")
    assert done.stdout.splitlines()[1] == "  0001: Scopes, trials, and the view of the best."
    assert tilewise.json("db", "upgrade")["steps"] == []
    assert "up to date already" in tilewise("db", "upgrade").stdout


def test_a_backup_restores_what_was_lost(tilewise, tuned):
    before = tuned.json("lookup", "row_reduce", "-s", "M=200,N=1000", "--device", "Ascend910B4")
    made = tuned.json("db", "backup", "-o", str(tilewise.folder / "tiles.db"))
    assert made["bytes"] > 0
    assert tilewise.json("lookup", "row_reduce", "-s", "M=200,N=1000", "--device", "Ascend910B4") == before
    assert tilewise("db", "check").returncode == 0


def test_commands_on_a_database_that_is_not_there_say_so(tilewise):
    for words in (("check",), ("upgrade",), ("backup", "-o", "copy.db")):
        done = tilewise("db", *words)
        assert (done.returncode, done.stdout) == (4, "")
        assert "nothing is stored yet" in done.stderr
        done = tilewise("db", *words, "--db", "sqlite:///other.db")
        assert (done.returncode, done.stdout) == (1, "")
        assert "no database at other.db" in done.stderr


def test_a_shared_postgresql_does_what_a_file_does(tilewise, postgres_url):
    shared = ("--db", postgres_url)
    problem = ("row_reduce", "-s", "M=200,N=1000")
    tuned = tilewise.json("tune", *problem, "--device", "model:Ascend910B4", "--trials", "3", *shared)
    found = tilewise.json("lookup", *problem, "--device", "Ascend910B4", *shared)
    assert found["results"][0]["config"] == tuned["results"][0]["config"]
    assert tilewise.json("db", "check", *shared)["rows"]["scopes"] == 1
    assert tilewise.json("db", "upgrade", *shared)["steps"] == []
    tilewise.json("export", "--format", "json", "-o", str(tilewise.folder / "configs.json"), *shared)
    assert tilewise("import", str(tilewise.folder / "configs.json")).returncode == 0
    assert tilewise.json("lookup", *problem, "--device", "Ascend910B4") == found


def test_the_command_that_backup_names_for_postgresql_makes_a_dump(tilewise, postgres_url):
    open_store(postgres_url).close()
    done = tilewise("db", "backup", "-o", str(tilewise.folder / "tiles.dump"), "--db", postgres_url)
    assert (done.returncode, done.stdout) == (2, "")
    command = done.stderr.strip().rpartition("run: ")[2]
    subprocess.run(command, shell=True, check=True, timeout=60)
    assert (tilewise.folder / "tiles.dump").read_bytes().startswith(b"PGDMP")
