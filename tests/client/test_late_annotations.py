"""Annotations as text: `from __future__ import annotations`, names that come late or never."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from forge_jobs import BadOption, Context, Forge

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

    from forge_jobs import JobCtx


def test_context_is_found_although_annotations_are_text(forge: Forge) -> None:
    @forge.task
    def job(a: int, ctx: Context) -> str:
        return ctx.job.kind

    assert job.bind(3).payload == b'{"a":3}'
    assert job(3) == "job"


def test_context_imported_for_the_type_checker_alone(forge: Forge) -> None:
    @forge.task
    def job(a: int, ctx: JobCtx) -> str:
        return ctx.job.kind

    assert job.bind(3).payload == b'{"a":3}'
    assert job(3) == "job"


def test_types_of_the_surrounding_function(forge: Forge) -> None:
    @dataclass
    class Local:
        x: int

    @forge.task
    def job(value: Local) -> int:
        return value.x

    bound = job.bind(Local(3))
    handler = forge.handler("job")
    assert handler is not None
    assert handler.call(bound.payload, _no_context) == 3


def test_a_type_that_is_defined_after_the_task(forge: Forge) -> None:
    @forge.task
    def job(value: Later) -> int:  # noqa: F821
        return value.x

    globals()["Later"] = _Later
    try:
        assert job.bind(_Later(4)).payload == b'{"value":{"x":4}}'
    finally:
        del globals()["Later"]


def test_a_type_that_does_not_exist_is_named_on_first_use(forge: Forge) -> None:
    @forge.task
    def job(good: int, value: Missing) -> None: ...

    for use in (lambda: job.bind(1, 2), lambda: job.enqueue(1, 2), lambda: job(1, 2)):
        with pytest.raises(BadOption) as caught:
            use()
        assert "task 'job'" in str(caught.value)
        assert "'value'" in str(caught.value)
        assert "'Missing'" in str(caught.value)
        assert "TYPE_CHECKING" in str(caught.value)


def test_a_result_type_that_does_not_exist_does_no_harm(forge: Forge) -> None:
    @forge.task
    def job(a: int) -> Missing:
        return a

    assert job.bind(1).payload == b'{"a":1}'
    assert job.signature.read_result(b"5") == 5


@dataclass
class _Later:
    x: int


def _no_context() -> Any:
    raise AssertionError("nobody asked for it")
