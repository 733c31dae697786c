"""Values of arguments: numbers, spans of time, partitions, names with values."""

from __future__ import annotations

import argparse
import re
from typing import Final

_SIZE: Final = re.compile(r"(\d+)\s*([kMGT]?)(i?)B?")
_POWERS: Final = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}
_UNITS: Final = {"k": 1_000, "m": 1_000_000, "ki": 1 << 10, "mi": 1 << 20}


def count(text: str) -> int:
    """Read a number above 0: `1000`, `10k`, `2M`, `64Ki`."""
    number = count_or_none(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def count_or_none(text: str) -> int:
    """Read a number that may be 0."""
    digits = text.rstrip("kKmMi")
    unit = text[len(digits) :].lower()
    if not digits.isdecimal() or (unit and unit not in _UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 1000, 10k, 2M or 64Ki")
    return int(digits) * _UNITS.get(unit, 1)


def size(text: str) -> int:
    """Read a number of bytes such as 500MB, 10GiB or 4096."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write 4096, 500MB or 10GiB")
    number, unit, binary = match.groups()
    return int(number) * int((1024 if binary else 1000) ** _POWERS[unit])


def seconds(text: str) -> float:
    """Read a span of time above 0, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def partitions(text: str) -> list[int]:
    """Read partition numbers: `3`, `0,2,5-7`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 15:
            raise argparse.ArgumentTypeError(f"{text!r} names no partitions; try 3 or 0,2,5-7")
        numbers.extend(range(int(first), int(last or first) + 1))
    return sorted(set(numbers))


def setting(text: str) -> tuple[str, str]:
    """Read `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, value


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
