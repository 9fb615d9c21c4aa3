"""A signal handler that raises while a child sends a line: the line is sent whole."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, threading
from forge_jobs.kit.children.parent_link import ParentLink
from tests.interrupting import Late, alarm

messages, written = os.pipe()
lifeline, kept_open = os.pipe()
link = ParentLink(os.pipe()[0], written, lifeline)
with alarm(Late) as in_seconds:
    try:
        in_seconds(0.2)
        # More than the pipe takes while nobody reads.
        link.send(b"a" * 300_000)
        print("not interrupted")
    except Late:
        pass

def read() -> None:
    lines = open(messages, "rb")
    print(sorted(len(lines.readline()) for _ in range(2)), flush=True)

reader = threading.Thread(target=read)
reader.start()
link.send(b"b")
reader.join(30)
os._exit(0)
"""


def test_an_interrupted_line_is_sent_whole(project_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(project_root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        start_new_session=True,
    )
    assert done.stdout == "[2, 300001]\n", done.stdout + done.stderr
