"""Tests wait for conditions and assert no durations: those are measured in `bench/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

_CLOCKS: Final = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
_ALLOWED: Final = {
    "test_columns_lock.py",  # orders moments of two threads
    "test_storeturns.py",  # runs in an event loop of simulated time
    "test_storefaults.py",  # a least duration, which no busy host can fall below
    "test_kafkaproxy.py",  # likewise
}
_TESTS: Final = Path(__file__).parent.parent


def is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or node.args:
        return False
    return getattr(node.func, "attr", getattr(node.func, "id", "")) in _CLOCKS


def moments(tree: ast.AST) -> set[str]:
    """Return the variables that hold a clock's time."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_clock(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def parsed(text: str) -> ast.Module:
    """Return the syntax tree, empty for a text without a clock: parsing takes most of the time."""
    return ast.parse(text if any(f"{name}()" in text for name in _CLOCKS) else "")


def durations(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where a clock's time is subtracted from, or compared in an assertion."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            continue
        names = moments(function)
        for node in ast.walk(function):
            match node:
                case ast.BinOp(left=left, op=ast.Sub()):
                    if is_clock(left) or (isinstance(left, ast.Name) and left.id in names):
                        yield node.lineno
                case ast.Assert(test=test):
                    if any(map(is_clock, ast.walk(test))):
                        yield node.lineno
                case _:
                    pass


def test_no_test_measures_a_duration() -> None:
    measured = [
        f"{path.relative_to(_TESTS)}:{line}"
        for path in sorted(_TESTS.rglob("test_*.py"))
        if path.name not in _ALLOWED
        for line in durations(parsed(path.read_text("utf-8")))
    ]
    assert measured == []


@pytest.mark.parametrize(
    "line",
    [
        "assert time.monotonic() - began < 5",
        "ended = monotonic(); assert ended - began < 5",
        "assert monotonic() < began + 5",
    ],
)
def test_measured_duration_is_detected(line: str) -> None:
    text = f"began = monotonic()\nwork()\n{line}"
    assert set(durations(ast.parse(text))) == {3}


def test_generated_examples_have_no_deadline() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
