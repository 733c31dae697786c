"""The part of a Java server's log that explains a failure: its errors, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

# As `maven/log4j2.properties` has it.
_ENTRY: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:,.]+ (?P<level>[A-Z]+) ")
_SEVERE: Final = frozenset({"ERROR", "FATAL"})
_SETTING: Final = re.compile(r"\t[\w.-]+ = ")
_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ )")


def explain(text: str, lines: int) -> str:
    """Return the last errors of a log without their stacks, then its end without settings.

    Kafka prints all its settings several times while it starts, from more than one thread. Hundreds
    of these lines can follow the error that ends the start, so that the end alone shows no cause.

    Args:
        text: the log.
        lines: the number of lines, of errors and of the end.
    """
    entries = [line for line in text.splitlines() if line and not _SETTING.match(line)]
    end = entries[-lines:]
    errors = [line for line in _severe(entries) if line not in end][-lines:]
    return "\n".join([*errors, "[…]", *end] if errors else end)


def _severe(lines: Iterable[str]) -> Iterator[str]:
    """Return the lines of errors and of their causes."""
    is_severe = False
    for line in lines:
        if entry := _ENTRY.match(line):
            is_severe = entry["level"] in _SEVERE
        if is_severe and not _FRAME.match(line):
            yield line
