"""Tests wait for conditions and assert no durations: those are measured in `bench/`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CLOCKS: Final = {"monotonic", "perf_counter", "process_time", "thread_time", "time"}
_ALLOWED: Final = {
    "test_columns_lock.py",  # orders moments of two threads
    "test_storeturns.py",  # runs in an event loop of simulated time
    "test_storefaults.py",  # a least duration, which no busy host can fall below
    "test_kafkaproxy.py",  # likewise
}
_TESTS: Final = Path(__file__).parent.parent


def durations(tree: ast.AST) -> Iterator[int]:
    """Yield the lines where the difference of a clock's time is taken."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            call = node.left
            if isinstance(call, ast.Call) and not call.args:
                name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                if name in _CLOCKS:
                    yield node.lineno


def test_no_test_measures_a_duration() -> None:
    found = [
        f"{path.relative_to(_TESTS)}:{line}"
        for path in sorted(_TESTS.rglob("test_*.py"))
        if path.name not in _ALLOWED
        for line in durations(ast.parse(path.read_text()))
    ]
    assert found == []


def test_measured_duration_is_detected() -> None:
    text = "began = monotonic()\nwork()\nassert time.monotonic() - began < 5"
    assert list(durations(ast.parse(text))) == [3]
