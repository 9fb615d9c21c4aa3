"""Exit codes, and error messages as one line on stderr. Imports the standard library only."""

import json
import sys
from typing import Final

from forge_jobs.core.errors import Conflict, ForgeError, Invalid
from forge_jobs.kit import redact

OK: Final = 0
FAILED: Final = 1
REFUSED: Final = 2
INTERRUPTED: Final = 130


class Stop(Exception):
    """Ends the command with a message and an exit code; for errors of the command line itself."""

    def __init__(self, message: str, *, code: str = "refused", exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code


def exit_code(error: ForgeError) -> int:
    """2 if the request was invalid or refused, 1 if it was valid and failed."""
    return REFUSED if isinstance(error, Invalid | Conflict) else FAILED


def print_error(message: str, *, code: str, as_json: bool, explained: bool = False) -> None:
    """Print an error on stderr: one line of text, or one JSON object with its code. ``explained``
    adds the command that says more."""
    clean = redact.prose(message)
    if as_json:
        print(json.dumps({"error": {"code": code, "message": clean}}), file=sys.stderr)
    else:
        more = f" (more: forge help {code})" if explained else ""
        print(f"forge: {' '.join(clean.split())}{more}", file=sys.stderr)
