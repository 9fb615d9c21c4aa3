"""The count of commits by level, on real connections in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import json, sys
from benchmarks import audit
commits = audit.install()
import sqlite3
link = sqlite3.connect(sys.argv[1], isolation_level=None)
link.execute("PRAGMA journal_mode = WAL")
link.execute("CREATE TABLE t (a)")
link.execute("INSERT INTO t VALUES (1)")
link.executescript("PRAGMA synchronous = NORMAL")
link.execute("BEGIN IMMEDIATE")
link.execute("WITH n(i) AS (SELECT 1) INSERT INTO t SELECT i FROM n")
link.execute("UPDATE t SET a = 2")
link.execute("COMMIT")
link.execute("BEGIN")
link.execute("SELECT * FROM t").fetchall()
link.execute("COMMIT")
link.execute("WITH n(i) AS (SELECT 1) SELECT i FROM n").fetchall()
link.execute("BEGIN")
link.execute("DELETE FROM t")
link.execute("ROLLBACK")
link.executescript("PRAGMA synchronous = 2")
link.execute("REPLACE INTO t VALUES (3)")
print(json.dumps(commits.summary()))
"""


def test_counts_only_commits_that_wrote_by_level_in_force(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "a.db")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["commits"] == {"FULL": 2, "NORMAL": 1}
    assert told["journal"] == ["wal"]
