"""Patterns over topic names: RE2, the engine that it replaced, and Python's own `re`.

    python bench/patterns.py

10 000 names of topics. Figures are CPU milliseconds, the best of several runs: to compile a
pattern, and to match it against all names. The former engine is read from the history of this
repository; without it, its columns are empty. `re` does not end with the last pattern: it tries
all ways one after the other, which is why it is not used.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from rookery.service.namepattern import NamePattern

RUNS: Final = 5
NAMES: Final = [
    f"{area}.{kind}-{number}"
    for area in ("orders", "payments", "stock", "clicks", "audit")
    for kind in ("events", "changes", "errors", "commands")
    for number in range(500)
]
PATTERNS: Final = {
    "one name": r"orders\.events-17",
    "a prefix": r"orders\..*",
    "one of several": r"(orders|stock)\.(events|errors)-\d+",
    "a class, repeated": r"[a-z]+\.[a-z]+-[0-9]{1,3}",
    "an ending": r".*-499",
    "all names": r".*",
    "nested repetition": r"([a-z.]+)+-x",
}
HOSTILE: Final = frozenset({"nested repetition"})
FORMER: Final = "a1441f61^"
"""The last commit with the former engine."""
_FOLDER: Final = "src/rookery/broker/groups"

Matching = Callable[[list[str]], list[str]]


def former_engine() -> type[Any] | None:
    """Return the class of the former engine, if the history has it."""
    for name in ("pattern", "regex"):
        done = subprocess.run(
            ["git", "show", f"{FORMER}:{_FOLDER}/{name}.py"],  # noqa: S607 (git of the path)
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return None
        module = ModuleType(f"rookery.broker.groups.{name}")
        sys.modules[module.__name__] = module
        exec(compile(done.stdout, module.__name__, "exec"), vars(module))  # noqa: S102 (our own)
    engine: type[Any] = module.Regex
    return engine


def python_matching(text: str) -> Matching:
    """Compile a pattern with `re`, whose cache would answer otherwise."""
    re.purge()
    fullmatch = re.compile(text).fullmatch
    return lambda names: [name for name in names if fullmatch(name)]


def milliseconds(action: Callable[[], object]) -> float:
    """Return the least CPU time of a call."""
    spent = []
    for _ in range(RUNS):
        started = time.process_time()
        action()
        spent.append(time.process_time() - started)
    return min(spent) * 1000


def measure(compiled: Callable[[str], Matching], text: str) -> tuple[float, float, list[str]]:
    """Return the time to compile a pattern, the time to match it first, and what it matches."""
    names = compiled(text)(NAMES)
    built = milliseconds(lambda: compiled(text))
    # With a new pattern each time, since engines remember what they have seen.
    both = milliseconds(lambda: compiled(text)(NAMES))
    return built, both - built, names


def main() -> None:
    """Print one row for each pattern."""
    former = former_engine()
    engines: dict[str, Callable[[str], Matching]] = {
        "RE2": lambda text: NamePattern(text).matching,
        "re": python_matching,
    }
    if former is not None:
        engines["former"] = lambda text: former(text).matching
    table = Table(title=f"patterns: ms to compile + to match {len(NAMES):,} names")
    for heading in ("pattern", "matches", *engines):
        table.add_column(heading, justify="left" if heading == "pattern" else "right")
    for what, text in PATTERNS.items():
        cells, found = [], []
        for name, compiled in engines.items():
            if name == "re" and what in HOSTILE:
                cells.append("does not end")
                continue
            built, matched, names = measure(compiled, text)
            found.append(names)
            cells.append(f"{built:.3f} + {matched:.2f}")
        if any(names != found[0] for names in found):
            raise AssertionError(f"{text}: the engines disagree")
        table.add_row(what, f"{len(found[0]):,}", *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
