"""U5 and U15c: values that change on their way, and annotations that cannot be read back."""

import enum
import ipaddress
import re
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pydantic
import pytest

from forge_jobs import BadArguments, BadOption, Forge


class Login(pydantic.BaseModel):
    name: str
    password: pydantic.SecretStr


class Plain(pydantic.BaseModel):
    name: str
    size: int = 1
    _seen: list[int] = pydantic.PrivateAttr(default_factory=lambda: [1])


class Partial(pydantic.BaseModel):
    name: str
    note: str = pydantic.Field(default="", exclude=True)


@dataclass
class Wrapped:
    logins: list[Login]


@dataclass
class File:
    path: Path
    hosts: list[ipaddress.IPv4Address]


class Color(enum.Flag):
    RED = 1
    BLUE = 2


class Level(enum.Enum):
    HIGH = "high"


def _secret() -> Login:
    return Login(name="ada", password=pydantic.SecretStr("sesame"))


def test_u5_a_secret_that_would_arrive_as_asterisks_is_refused(forge: Forge) -> None:
    @forge.task
    def use(login: Login) -> None: ...

    @forge.task
    def use_wrapped(wrapped: Wrapped) -> None: ...

    @forge.task
    def use_many(*logins: Login) -> None: ...

    @forge.task
    def use_named(**logins: Login) -> None: ...

    @forge.task
    def use_optional(name: str, login: Login | None = None) -> None: ...

    calls: list[Callable[[], Any]] = [
        lambda: use.enqueue(_secret()),
        lambda: use.enqueue_many([(_secret(),)]),
        lambda: forge.enqueue("use", {"login": _secret()}),
        lambda: use_wrapped.enqueue(Wrapped([_secret()])),
        lambda: use_many.enqueue(_secret()),
        lambda: use_named.enqueue(a=_secret()),
        lambda: use_optional.enqueue("x", _secret()),
    ]
    for call in calls:
        with pytest.raises(BadArguments, match="would reach the worker changed") as refused:
            call()
        assert "sesame" not in str(refused.value)
        assert "reference" in str(refused.value)
    with pytest.raises(
        BadArguments, match="argument 'login' would reach the worker changed in 'pa"
    ):
        use.enqueue(_secret())
    assert forge.jobs().count() == 0
    use_optional.enqueue("x")


def test_u5_an_excluded_field_is_refused_only_if_it_is_set(forge: Forge) -> None:
    @forge.task
    def use(value: Partial) -> None: ...

    use.enqueue(Partial(name="a"))
    with pytest.raises(BadArguments, match="changed in 'note'"):
        use.enqueue(Partial(name="a", note="lost"))


async def test_u5_other_models_are_stored_as_before(forge: Forge) -> None:
    seen: list[Plain] = []

    @forge.task
    async def use(value: Plain, more: dict[str, Plain]) -> None:
        seen.extend([value, *more.values()])

    changed = Plain(name="a")
    changed._seen.append(2)  # private attributes are not stored, and do not count
    await use.aenqueue(changed, {"b": Plain(name="b", size=7)})
    await use.aenqueue({"name": "c"}, {})  # pyright: ignore[reportArgumentType]
    assert (await forge.drain()).done == 2
    assert [(item.name, item.size) for item in seen] == [("a", 1), ("b", 7), ("c", 1)]


def test_u5_a_bare_secret_is_refused_when_the_task_is_registered(forge: Forge) -> None:
    with pytest.raises(BadOption, match="is a SecretStr, which hides its value") as refused:

        @forge.task
        def use(password: pydantic.SecretStr) -> None: ...

    assert "get_secret_value()" in str(refused.value)
    assert "reference" in str(refused.value)


async def test_u15c_paths_addresses_and_deques_are_read_back(forge: Forge) -> None:
    seen: list[Any] = []

    @forge.task
    async def use(
        path: Path,
        pure: PurePosixPath,
        address: ipaddress.IPv4Address,
        networks: list[ipaddress.IPv6Network],
        items: deque[int],
        file: File,
        maybe: Path | None = None,
    ) -> Path:
        seen.append((path, pure, address, networks, items, file, maybe))
        return path

    given = (
        Path("/a/b c.txt"),
        PurePosixPath("x"),
        ipaddress.IPv4Address("10.0.0.1"),
        [ipaddress.IPv6Network("2001:db8::/32")],
        deque([1, 2]),
        File(Path("é.txt"), [ipaddress.IPv4Address("127.0.0.1")]),
        Path("last"),
    )
    job = await use.aenqueue(*given)
    await forge.drain()
    assert seen == [given]
    assert await job.aresult(timeout=10) == Path("/a/b c.txt")
    await use.aenqueue("a", "b", "1.2.3.4", [], [3], File(Path("c"), []))  # pyright: ignore[reportArgumentType]
    await forge.drain()
    assert seen[1][:3] == (Path("a"), PurePosixPath("b"), ipaddress.IPv4Address("1.2.3.4"))
    assert seen[1][4] == deque([3])


def test_u15c_wrong_values_of_these_types_are_refused(forge: Forge) -> None:
    @forge.task
    def use(address: ipaddress.IPv4Address, items: deque[int], path: Path) -> None: ...

    for call in (
        lambda: use.enqueue("nonsense", deque([1]), Path("a")),  # pyright: ignore[reportArgumentType]
        lambda: use.enqueue(ipaddress.IPv4Address("1.2.3.4"), deque(["x"]), Path("a")),  # pyright: ignore[reportArgumentType]
        lambda: use.enqueue(ipaddress.IPv4Address("1.2.3.4"), deque([1]), 5),  # pyright: ignore[reportArgumentType]
        lambda: use.enqueue(ipaddress.IPv4Address("1.2.3.4"), 5, Path("a")),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises(BadArguments):
            call()


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (Color, "is a Color, a Flag"),
        (list[Color], "is a Color, a Flag"),
        (re.Pattern, "has the type Pattern"),
        (socket.socket, "has the type socket"),
        (dict[str, complex], "has the type complex"),
        (Callable[[int], int], "has the type Callable"),
        (range, "has the type range"),
    ],
)
def test_u15c_what_cannot_be_read_back_is_refused_at_registration(
    forge: Forge, annotation: Any, text: str
) -> None:
    def use(value: Any) -> None: ...

    use.__annotations__["value"] = annotation
    with pytest.raises(BadOption) as refused:
        forge.task(use)
    assert text in str(refused.value)
    assert "task 'use': parameter 'value'" in str(refused.value)
    assert not forge.tasks


async def test_u15c_an_object_as_a_default_is_no_argument(forge: Forge) -> None:
    """A default that is never enqueued may be anything: it does not pass through the store."""
    pattern = re.compile("a+")

    @forge.task
    async def use(text: str, level: Level = Level.HIGH, using: re.Pattern[str] = pattern) -> bool:
        return using.match(text) is not None

    job = await use.aenqueue("aaa")
    await forge.drain()
    assert await job.aresult(timeout=10) is True
    with pytest.raises(BadArguments):
        await use.aenqueue("aaa", using=pattern)
