"""Time comes from `rookery.clock`: lint bans `time.time`, this finds the ways that lint cannot see.

`loop.time()` is a method call, and `perf_counter` is allowed for measurements alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
READINGS = frozenset(
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
)
ALLOWED = {
    "clock.py": "the one place",
    "testing/": "tests may measure real time",
}
"""Where time is read directly, by the beginning of the path; and why."""
METERS = (
    "/meter.py",
    "broker/dispatch.py",
    "cli/commands/perf/consume.py",
    "cli/commands/perf/latency.py",
    "cli/commands/perf/produce.py",
    "cli/demo/records.py",
    "cli/output/figures.py",
    "cli/output/jobs.py",
    "cluster/appender.py",
    "log/write/writer.py",
    "service/quotas/requestthrottle.py",
    "store/wrappers.py",
)
"""Modules that measure durations for a metric, a quota or a printed figure, by their ends."""
SIGNS = ("from time import", "import time", ".time(")
"""A module without any of these is not worth parsing."""


def readings(text: str) -> Iterator[tuple[int, str]]:
    """Find where a module reads a clock of the system or of an event loop."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            for name in READINGS.intersection(alias.name for alias in node.names):
                yield node.lineno, f"from time import {name}"
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "time":
            if node.attr in READINGS:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Call) and not node.args and is_loop_time(node.func):
            yield node.lineno, ast.unparse(node)


def is_loop_time(function: ast.expr) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "time"
        and "loop" in ast.unparse(function.value).lower()
    )


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), path.read_text("utf-8")


def test_only_the_clock_module_reads_clocks() -> None:
    direct = [
        f"{name}:{line} {reading}"
        for name, text in modules()
        if not name.startswith(tuple(ALLOWED)) and any(sign in text for sign in SIGNS)
        for line, reading in readings(text)
    ]

    assert direct == []


def test_only_meters_use_the_stopwatch() -> None:
    users = {
        name for name, text in modules() if "import stopwatch" in text or ", stopwatch" in text
    }

    assert {name for name in users if not name.endswith(METERS)} == set()


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.get_running_loop().time()",
        "loop.time()",
        "self._loop.time()",
        "time.perf_counter()",
        "time.monotonic_ns()",
        "from time import perf_counter",
    ],
)
def test_clock_reading_is_detected(line: str) -> None:
    assert [reading for _, reading in readings(f"if True:\n    {line}\n")] == [
        line.removesuffix("()") if line.startswith("time.") else line
    ]


@pytest.mark.parametrize("line", ["moment.time()", "time.sleep(1)", "loop.call_later(1, work)"])
def test_code_without_a_clock_reading_is_not_reported(line: str) -> None:
    assert list(readings(line)) == []
