"""An exception as one line of text."""

from itertools import pairwise

import pytest

from forge_jobs.engine.running.error_text import error_text


def _raised(*errors: BaseException) -> BaseException:
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (_raised(RuntimeError("boom"), ValueError("boom")), "RuntimeError: boom"),
        (_raised(TimeoutError(), TimeoutError()), "TimeoutError"),
        (_raised(RuntimeError("KeyError: 'x'"), KeyError("x")), "RuntimeError: KeyError: 'x'"),
        (
            _raised(OSError("a"), ValueError("b"), OSError("a")),
            "OSError: a: ValueError: b",
        ),
        (_raised(RuntimeError("try 1"), KeyError(1)), "RuntimeError: try 1: KeyError: 1"),
        (_raised(RuntimeError("sending"), OSError("full")), "RuntimeError: sending: OSError: full"),
        (_raised(RuntimeError("x"), TimeoutError()), "RuntimeError: x: TimeoutError"),
    ],
)
def test_u15h_the_text_does_not_repeat_its_cause(error: BaseException, text: str) -> None:
    assert error_text(error) == text
