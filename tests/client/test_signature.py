"""Arguments on their way to JSON and back: what fits, what does not, and what the error says."""

import dataclasses
import datetime as dt
import decimal
import enum
import math
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forge_jobs.client.signature import Signature
from forge_jobs.core.errors import BadArguments, BadOption, BadPayload, PayloadTooLarge
from forge_jobs.core.kind_signature import ArgumentMismatch

LIMIT = 10_000


class Here:
    """Stands for the Context."""


def signature(function: Any) -> Signature:
    return Signature(function, kind="job", contexts=(Here,))


def encoded(function: Any, *args: Any, **kwargs: Any) -> bytes:
    return signature(function).encode(args, kwargs, limit=LIMIT)


def returned(function: Any, *args: Any, **kwargs: Any) -> Any:
    """What the worker's call gives for arguments that travelled through JSON."""
    shape = signature(function)
    data = shape.encode(args, kwargs, limit=LIMIT)
    return shape.call(function, data, Here)


def plain(to: str, subject: str = "none", *, count: int = 1) -> tuple[str, str, int]:
    return to, subject, count


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Size(msgspec.Struct):
    width: int


class Person(pydantic.BaseModel):
    name: str
    age: int = 0


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: int
    right: str


class Shape(TypedDict):
    corners: int


def test_arguments_are_stored_by_name_and_defaults_are_left_to_the_function() -> None:
    assert encoded(plain, "a@b.c") == b'{"to":"a@b.c"}'
    assert encoded(plain, "a", "hi", count=3) == b'{"to":"a","subject":"hi","count":3}'
    assert encoded(plain, subject="hi", to="a") == b'{"subject":"hi","to":"a"}'
    assert returned(plain, "a") == ("a", "none", 1)
    assert returned(plain, "a", count=4) == ("a", "none", 4)


def test_a_function_without_parameters_stores_an_empty_object() -> None:
    assert encoded(lambda: 7) == b"{}"
    assert returned(lambda: 7) == 7


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "missing argument 'to'"),
        (("a", "b", "c"), {}, "3 positional arguments were given"),
        (("a",), {"to": "b"}, "argument 'to' is given twice"),
        (("a", "b"), {"count": 1, "subject": "c"}, "argument 'subject' is given twice"),
        ((), {"to": 5, "delay": 1}, "unexpected argument 'delay'"),
        (("a",), {"delay": "10m"}, "unexpected argument 'delay'"),
        ((7,), {}, "argument 'to' must be str: expected `str`, got `int`"),
        ((None,), {}, "argument 'to' must be str"),
        ((b"a",), {}, "argument 'to' must be str"),
        (("a",), {"count": "3"}, "argument 'count' must be int: expected `int`, got `str`"),
        (("a",), {"count": True}, "argument 'count' must be int: expected `int`, got `bool`"),
        (("a",), {"count": 1.5}, "argument 'count' must be int"),
    ],
)
def test_wrong_arguments_name_task_parameter_and_what_is_expected(
    args: tuple[Any, ...], kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        encoded(plain, *args, **kwargs)
    assert str(caught.value).startswith("task 'job': ")
    assert message in str(caught.value)


def test_errors_about_the_shape_of_a_call_show_what_the_task_takes() -> None:
    with pytest.raises(BadArguments, match=r"it takes \(to: str, subject: str = \.\.\., count"):
        encoded(plain)
    with pytest.raises(BadArguments, match=r"go into using\(\.\.\.\)"):
        encoded(plain, "a", priority=3)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Point, Point(1, 2)),
        (Size, Size(3)),
        (Person, Person(name="Ada", age=36)),
        (Colour, Colour.RED),
        (Pair, Pair(1, "r")),
        (Shape, {"corners": 4}),
        (list[Point], [Point(1), Point(2)]),
        (dict[str, Size], {"a": Size(1)}),
        (list[Person], [Person(name="Bo")]),
        (Person | None, None),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (bytes, b"\x00\xff"),
        (dt.datetime, dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
        (dt.date, dt.date(2030, 1, 2)),
        (dt.timedelta, dt.timedelta(seconds=90)),
        (uuid.UUID, uuid.UUID(int=5)),
        (decimal.Decimal, decimal.Decimal("1.50")),
        (Literal["a", "b"], "a"),
        (Annotated[int, msgspec.Meta(ge=1)], 4),
        (int | str, "x"),
        (str | None, None),
        (float, 2),
        (dict[int, str], {1: "a"}),
        (int, 2**80),
        (Any, {"deep": [1, {"er": None}]}),
        (object, [1, 2]),
    ],
)
def test_a_value_comes_back_as_its_annotation_says(annotation: Any, value: Any) -> None:
    def job(value: Any) -> Any:
        return value

    job.__annotations__["value"] = annotation
    assert returned(job, value) == value
    assert type(returned(job, value)) in (type(value), float)


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Point, Size(1), "Point"),
        (list[int], [1, "2"], "list[int]"),
        (list[Point], [3], "list["),
        (Person, {"age": 3}, "name: Field required"),
        (Literal["a", "b"], "c", "Literal"),
        (Annotated[int, msgspec.Meta(ge=1)], 0, "expected `int` >= 1"),
        (Colour, "blue", "Colour"),
        (str, dt.date(2030, 1, 1), "str"),
        (dt.datetime, "yesterday", "datetime"),
        (int | str, 1.5, "int | str"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(annotation: Any, value: Any, expected: str) -> None:
    def job(value: Any) -> Any:
        return value

    job.__annotations__["value"] = annotation
    with pytest.raises(BadArguments) as caught:
        encoded(job, value)
    assert "argument 'value'" in str(caught.value)
    assert expected in str(caught.value)


def test_a_struct_with_a_field_of_the_wrong_type_is_refused_before_it_is_stored() -> None:
    def job(size: Size) -> None: ...

    with pytest.raises(BadArguments, match="could not read these arguments back"):
        encoded(job, Size(width="wide"))  # type: ignore[arg-type]


def test_errors_repeat_no_values() -> None:
    def job(person: Person) -> None: ...

    with pytest.raises(BadArguments) as caught:
        encoded(job, {"name": "Ada", "age": "sesame-open"})
    assert "person" in str(caught.value)
    assert "age" in str(caught.value)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (object(), "objects of type object have no JSON form"),
        (lambda: 1, "have no JSON form"),
        (math.nan, "NaN"),
        ([math.inf], "NaN or an infinity"),
        ("a\0b", "NUL"),
        ("\ud800", "cannot be stored as JSON"),
        ({"a": {1: object()}}, "no JSON form"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_the_argument_named(
    value: Any, complaint: str
) -> None:
    def job(fine: int, value: Any) -> None: ...

    with pytest.raises(BadPayload) as caught:
        encoded(job, 1, value)
    assert complaint in str(caught.value)
    assert "task 'job'" in str(caught.value)


def test_nan_is_refused_on_the_short_way_too() -> None:
    def job(value: float) -> None: ...

    with pytest.raises(BadPayload, match="NaN"):
        encoded(job, math.nan)
    assert encoded(job, 1.5) == b'{"value":1.5}'


def test_deep_nesting_is_refused() -> None:
    def job(value: Any) -> None: ...

    deep: Any = 1
    for _ in range(70):
        deep = [deep]
    with pytest.raises(BadPayload, match="64 levels"):
        encoded(job, deep)


@pytest.mark.parametrize("text", ["x" * LIMIT, "ü" * (LIMIT // 2)])
def test_a_payload_over_the_limit_says_what_to_do(text: str) -> None:
    def job(text: str, more: Any = None) -> None: ...

    for more in (None, []):
        with pytest.raises(PayloadTooLarge) as caught:
            encoded(job, text, more)
        assert caught.value.limit == LIMIT
        assert caught.value.size > LIMIT
        assert "payload_limit" in str(caught.value)
        assert "task 'job'" in str(caught.value)


def test_a_payload_of_exactly_the_limit_passes() -> None:
    def job(text: str) -> None: ...

    frame = len(b'{"text":""}')
    assert len(encoded(job, "x" * (LIMIT - frame))) == LIMIT


def rest(first: int, *others: int, flag: bool = False, **extra: str) -> Any:
    return first, others, flag, extra


def test_star_arguments_travel_under_their_name_and_double_star_lies_flat() -> None:
    assert encoded(rest, 1, 2, 3, flag=True, note="x") == (
        b'{"first":1,"others":[2,3],"flag":true,"note":"x"}'
    )
    assert returned(rest, 1, 2, 3, flag=True, note="x") == (1, (2, 3), True, {"note": "x"})
    assert returned(rest, 1) == (1, (), False, {})


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((1, 2, "3"), {}, "others"),
        ((1,), {"note": 5}, "note"),
        ((1,), {"others": [2]}, "others"),
        ((), {}, "missing argument 'first'"),
    ],
)
def test_star_arguments_are_checked_too(
    args: tuple[Any, ...], kwargs: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(BadArguments, match=complaint):
        encoded(rest, *args, **kwargs)


def test_positional_only_parameters() -> None:
    def job(a: int, /, b: int) -> tuple[int, int]:
        return a, b

    assert returned(job, 1, b=2) == (1, 2)
    with pytest.raises(BadArguments, match="'a'"):
        encoded(job, a=1, b=2)


def test_the_context_is_no_argument_at_any_position() -> None:
    def first(ctx: Here, a: int) -> Any:
        return ctx, a

    def last(a: int, ctx: Here) -> Any:
        return ctx, a

    def keyword(a: int, *, ctx: Here | None = None) -> Any:
        return ctx, a

    for function in (first, last, keyword):
        assert encoded(function, 5) == b'{"a":5}'
        here, a = returned(function, 5)
        assert isinstance(here, Here)
        assert a == 5
        with pytest.raises(BadArguments, match="the worker passes it"):
            encoded(function, 5, ctx=Here())


def test_no_context_is_made_for_a_function_that_wants_none() -> None:
    def refuse() -> Here:
        raise AssertionError("nobody asked for it")

    shape = signature(plain)
    assert shape.call(plain, b'{"to":"a"}', refuse) == ("a", "none", 1)
    assert not shape.wants_context


def test_a_plain_call_gets_a_context_only_where_none_was_given() -> None:
    def last(a: int, ctx: Here) -> None: ...
    def first(ctx: Here, a: int) -> None: ...
    def keyword(a: int, *, ctx: Here) -> None: ...

    given_here, made = Here(), Here()
    assert signature(last).fill_in((1,), {}, lambda: made) == ((1, made), {})
    assert signature(last).fill_in((1, given_here), {}, lambda: made) == ((1, given_here), {})
    assert signature(last).fill_in((), {"a": 1}, lambda: made) == ((), {"a": 1, "ctx": made})
    assert signature(first).fill_in((1,), {}, lambda: made) == ((made, 1), {})
    assert signature(first).fill_in((), {"a": 1}, lambda: made) == ((made,), {"a": 1})
    assert signature(keyword).fill_in((1,), {}, lambda: made) == ((1,), {"ctx": made})


def test_a_mutable_default_is_the_functions_own() -> None:
    default: list[int] = []

    def job(a: int, seen: list[int] = default) -> list[int]:
        return seen

    assert returned(job, 1) is default


def test_stored_arguments_that_do_not_fit_any_more_are_named() -> None:
    shape = signature(plain)
    for data in (b'{"to":1}', b"[]", b"{"):
        with pytest.raises(ArgumentMismatch, match="task 'job': the stored arguments do not fit"):
            shape.call(plain, data, Here)
    for data, text in (
        (b"{}", "task 'job': missing argument 'to'; this worker's version takes (to: str, "),
        (b'{"to":"a","colour":"red"}', "task 'job': unknown argument 'colour'; this worker's "),
        (b'{"colour":1,"a":"red"}', "unknown arguments 'a', 'colour', missing argument 'to'; "),
    ):
        with pytest.raises(ArgumentMismatch, match=re.escape(text)):
            shape.call(plain, data, Here)


def test_u4_a_published_signature_says_what_fits() -> None:
    def first(to: str, *, cc: str = "") -> None: ...
    def renamed(to: str, *, copy: str = "") -> None: ...
    def retyped(to: int, *, cc: str = "") -> None: ...
    def same(to: str, *, cc: str = "other default", ctx: Here | None = None) -> None: ...
    def anything(to: str, **more: int) -> None: ...

    made = {each.__name__: signature(each).published() for each in (
        first, renamed, retyped, same, anything)}  # fmt: skip
    assert made["first"] == made["same"]
    assert len(set(map(repr, made.values()))) == 4
    assert made["first"].misfit(["to", "cc"]) is None
    assert made["renamed"].misfit(["to", "cc"]) == "unknown argument 'cc'"
    assert made["anything"].misfit(["to", "cc", "x"]) is None
    assert made["anything"].misfit(["cc"]) == "missing argument 'to'"
    assert made["retyped"].may_take(("to",), unlike=made["first"])
    assert not made["same"].may_take(("to",), unlike=made["first"])
    assert not made["retyped"].may_take(("from",), unlike=made["first"])


def test_u4_a_field_added_to_a_struct_or_model_changes_the_fingerprint() -> None:
    published: list[str] = []
    for base in (msgspec.Struct, pydantic.BaseModel):
        for names in ({"a": int}, {"a": int, "b": str}):

            def job(value: Any) -> None: ...

            job.__annotations__["value"] = type("Model", (base,), {"__annotations__": names})
            published.append(signature(job).published().types)
    assert len(set(published)) == 4


def test_payloads_by_name() -> None:
    shape = signature(plain)
    assert shape.encode_mapping({"to": "a", "count": 2}, limit=LIMIT) == b'{"to":"a","count":2}'
    for bad in ({}, {"to": 1}, {"to": "a", "x": 1}):
        with pytest.raises(BadArguments):
            shape.encode_mapping(bad, limit=LIMIT)
    assert signature(rest).encode_mapping({"first": 1, "others": [2], "note": "n"}, limit=LIMIT)


def test_results_are_read_by_the_return_annotation_where_they_fit() -> None:
    def point() -> Point: ...  # type: ignore[empty-body]
    def unknown(): ...  # type: ignore[no-untyped-def]

    assert signature(point).read_result(b'{"x":1}') == Point(1)
    assert signature(point).read_result(b'"something else"') == "something else"
    assert signature(unknown).read_result(b'{"x":1}') == {"x": 1}
    assert signature(plain).read_result(b'["a","b",3]') == ("a", "b", 3)


def test_annotations_that_json_cannot_distinguish_are_refused_at_once() -> None:
    def job(value: Point | Size) -> None: ...

    with pytest.raises(BadOption, match=r"task 'job'.*Type unions may not contain"):
        signature(job)


def test_a_builtin_without_a_signature_is_refused() -> None:
    with pytest.raises(BadOption, match="no readable signature"):
        signature(getattr)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(value=json_values)
def test_any_json_value_comes_back_as_it_went(value: Any) -> None:
    def job(value: Any) -> Any:
        return value

    assert returned(job, value) == value


@given(
    a=st.integers(),
    b=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    c=st.floats(allow_nan=False, allow_infinity=False),
    d=st.booleans(),
)
def test_plain_values_come_back_as_they_went(a: int, b: str, c: float, d: bool) -> None:
    def job(a: int, b: str, c: float, d: bool) -> Any:
        return a, b, c, d

    assert returned(job, a, b, c=c, d=d) == (a, b, c, d)
