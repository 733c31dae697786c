"""Handlers keep no state in their modules: `Services` and `ClientSession` have typed members."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import GenericAlias, MappingProxyType, UnionType
from typing import Any

import pytest

from rookery.broker import apis
from rookery.wire.message import Api

MODULES = sorted(Path(apis.__path__[0]).glob("[a-z]*.py"))
IMMUTABLE = (
    bool, bytes, float, int, range, str, type(None), re.Pattern, Enum, Api, logging.Logger,
    # What annotations are made of.
    type, GenericAlias, UnionType,
)  # fmt: skip
CACHES = {"cache", "lru_cache"}

each_module = pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)


def is_immutable(value: object) -> bool:
    """Whether nothing can be kept in a value."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_immutable, value))
    if isinstance(value, MappingProxyType):
        return all(map(is_immutable, value.values()))
    return isinstance(value, IMMUTABLE)


def assigned(tree: ast.Module) -> Iterator[str]:
    """The names that a module gives values to."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            parts = (part for target in targets for part in ast.walk(target))
            yield from (part.id for part in parts if isinstance(part, ast.Name))


def hidden_state(source: str, values: dict[str, Any]) -> list[str]:
    """Where a module can keep state: its values, its caches and what its functions rebind."""
    tree = ast.parse(source)
    state = [name for name in assigned(tree) if not is_immutable(values[name])]
    for node in ast.walk(tree):
        match node:
            case ast.Global(names=names):
                state += names
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in CACHES:
                state.append(name)
    return state


def run(source: str) -> list[str]:
    values: dict[str, Any] = {}
    exec(compile(source, "planted", "exec"), values)  # noqa: S102 (the test's own text)
    return hidden_state(source, values)


@each_module
def test_a_handler_keeps_no_state_in_its_module(path: Path) -> None:
    module = import_module(f"{apis.__name__}.{path.stem}")

    assert hidden_state(path.read_text("utf-8"), vars(module)) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("_late: dict[str, int] = {}", ["_late"]),
        ("SEEN = [1]", ["SEEN"]),
        ("PAIR = (1, set())", ["PAIR"]),
        ("from weakref import WeakKeyDictionary\n_readers = WeakKeyDictionary()", ["_readers"]),
        ("class Readers: ...\n_readers = Readers()", ["_readers"]),
        ("_count = 0\ndef add():\n    global _count\n    _count += 1", ["_count"]),
        ("from functools import cache\n@cache\ndef known(): ...", ["cache"]),
        ("import functools\n@functools.lru_cache\ndef known(): ...", ["lru_cache"]),
        ("LIMIT = 5\nNAMES = frozenset({'a'})\nCodes = dict[str, int]", []),
    ],
)
def test_handler_state_in_a_module_is_detected(source: str, names: list[str]) -> None:
    assert run(source) == names
