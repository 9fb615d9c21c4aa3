"""Check the subject of a commit message: one line, at most 72 characters, no full stop."""

import sys
from pathlib import Path

LENGTH = 72


def problem(message: str) -> str | None:
    """What is wrong with the subject of ``message``; None if nothing is."""
    lines = message.splitlines() or [""]
    subject = lines[0]
    if not subject.strip():
        return "the subject is empty: say what the commit does, in the imperative"
    if len(subject) > LENGTH:
        return f"the subject has {len(subject)} characters, at most {LENGTH} fit in one line"
    if subject.endswith("."):
        return "the subject ends with a full stop: leave it out"
    if not subject[0].isupper():
        return "the subject begins with a small letter: write it like a sentence"
    if len(lines) > 1 and lines[1].strip():
        return "the second line is not empty: leave one line between subject and body"
    return None


def main() -> int:
    found = problem(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found:
        print(found, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
