"""Reads the docstrings of a class's fields: the string literals below them, which Python drops."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path


@cache
def field_docs(cls: type) -> Mapping[str, str]:
    """Return the docstring of every field that has one, inherited fields included.

    Without the class's source (a program frozen into one file) there are none.
    """
    docs: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        docs.update(_module_docs(base.__module__).get(base.__qualname__, {}))
    return docs


@cache
def _module_docs(module: str) -> Mapping[str, Mapping[str, str]]:
    """Read a module's source once; return the docstrings of all its classes, by qualified name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return {}
    try:
        # `inspect.getsource` is not used, because it would parse the whole file for every class.
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    return dict(_classes(tree.body, ""))


def _classes(body: Iterable[ast.stmt], above: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    for statement in body:
        match statement:
            case ast.ClassDef(name=name, body=inner):
                yield above + name, dict(_docs(inner))
                yield from _classes(inner, f"{above}{name}.")
            case (
                ast.FunctionDef(name=name, body=inner) | ast.AsyncFunctionDef(name=name, body=inner)
            ):
                yield from _classes(inner, f"{above}{name}.<locals>.")
            case ast.If(body=inner, orelse=other):
                yield from _classes([*inner, *other], above)
            case _:
                pass


def _docs(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(body):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                yield name, " ".join(inspect.cleandoc(doc).split())
            case _:
                pass
