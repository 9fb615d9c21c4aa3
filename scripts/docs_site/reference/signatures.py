"""Signatures and fields as they are written in the source, so that they are the same on every
version of Python."""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any, Final, get_overloads

MAX_WIDTH: Final = 96


def signatures(function: Callable[..., Any], name: str, *, method: bool) -> list[str]:
    """The signature of a function, or those of its overloads."""
    found = get_overloads(function) or [inspect.unwrap(function)]
    return list(dict.fromkeys(_signature(_parsed(one), name, method=method) for one in found))


def fields(cls: type) -> Iterator[tuple[str, str, str]]:
    """The public fields of a class with their types and defaults, those of base classes first."""
    seen: dict[str, tuple[str, str, str]] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("forge_jobs"):
            continue
        for node in _parsed_class(base).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                name = node.target.id
                annotation = _unquoted(node.annotation)
                if not name.startswith("_") and not annotation.startswith("ClassVar"):
                    seen[name] = (name, annotation, _default(node.value, base.__module__))
    yield from seen.values()


def _default(value: ast.expr | None, module: str) -> str:
    if value is None:
        return ""
    constant = getattr(sys.modules[module], value.id, None) if isinstance(value, ast.Name) else None
    if isinstance(constant, int | float):
        return repr(constant)
    text = ast.unparse(value)
    if text.startswith("field("):
        factory = [word.value for word in getattr(value, "keywords", [])]
        return f"{ast.unparse(factory[0])}()" if factory else ""
    return text


def _parsed(function: Callable[..., Any]) -> ast.FunctionDef | ast.AsyncFunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _parsed_class(cls: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, method: bool) -> str:
    arguments = node.args
    if method:
        first = arguments.posonlyargs or arguments.args
        del first[:1]
    parts = list(_parameters(arguments))
    start = ("async " if isinstance(node, ast.AsyncFunctionDef) else "") + "def "
    result = f" -> {_unquoted(node.returns)}" if node.returns is not None else ""
    line = f"{start}{name}({', '.join(parts)}){result}"
    if len(line) <= MAX_WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{start}{name}(\n{inner}){result}"


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    for index, (one, default) in enumerate(zip(positional, defaults, strict=True)):
        yield _parameter(one, default)
        if arguments.posonlyargs and index == len(arguments.posonlyargs) - 1:
            yield "/"
    if arguments.vararg is not None:
        yield f"*{_parameter(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(one, default)
    if arguments.kwarg is not None:
        yield f"**{_parameter(arguments.kwarg, None)}"


def _parameter(one: ast.arg, default: ast.expr | None) -> str:
    text = one.arg if one.annotation is None else f"{one.arg}: {_unquoted(one.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


class _Unquote(ast.NodeTransformer):
    """Annotations in quotes without their quotes; the texts of a Literal stay."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return node if ast.unparse(node.value) == "Literal" else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node


def _unquoted(node: ast.expr) -> str:
    return ast.unparse(_Unquote().visit(node))
