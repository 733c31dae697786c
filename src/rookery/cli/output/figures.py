"""Figures of a run: amounts, rates and percentiles; and a live count of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rookery.clock import stopwatch

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Speed:
    """A number of records and bytes, and the seconds they took."""

    records: int
    bytes: int
    seconds: float

    @property
    def records_per_second(self) -> float:
        """Records in one second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0

    @property
    def mb_per_second(self) -> float:
        """Millions of bytes in one second."""
        return self.bytes / self.seconds / 1e6 if self.seconds > 0 else 0.0

    def as_json(self) -> dict[str, float]:
        """Return the figures for scripts."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records_per_second, 1),
            "mb_per_second": round(self.mb_per_second, 3),
        }

    def text(self) -> str:
        """Return the figures as readable text."""
        return (
            f"{self.records:,} records, {size_text(self.bytes)} in {self.seconds:.2f} s: "
            f"{self.records_per_second:,.0f} records/s, {self.mb_per_second:,.1f} MB/s"
        )


def size_text(size: float) -> str:
    """Return a number of bytes in a suitable unit."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return the nearest ranks of p50, p95, p99 and p99.9, and the largest; empty of nothing."""
    if not values:
        return {}
    ranked = sorted(values)
    last = len(ranked) - 1
    ranks = {name: ranked[min(last, int(q * len(ranked)))] for name, q in QUANTILES.items()}
    return {**ranks, "max": ranked[last]}


def sparkline(values: Sequence[float]) -> str:
    """Return a plot of values, one character each; a zero is the lowest."""
    most = max(values, default=0.0)
    if most <= 0:
        return _BLOCKS[0] * len(values)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round(top * max(0.0, value) / most)] for value in values)


class LiveMeter:
    """Counts, and shows the count on a terminal's standard error while it grows."""

    def __init__(self, verb: str, *, shown: bool = True) -> None:
        """Start now.

        Args:
            verb: the participle to show, as in `produced`.
            shown: whether to show the count; without a terminal it is never shown.
        """
        self._verb = verb
        self._start = stopwatch()
        self.records = 0
        self.bytes = 0
        self._live = Live(
            console=Console(stderr=True), refresh_per_second=8, transient=True,
            get_renderable=lambda: Text(f"{self._verb} {self.speed().text()}"),
        )  # fmt: skip
        self._is_shown = shown and sys.stderr.isatty()

    def __enter__(self) -> LiveMeter:
        if self._is_shown:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            self._live.stop()

    def add(self, size: int, records: int = 1) -> None:
        """Count records and their bytes."""
        self.records += records
        self.bytes += size

    def speed(self) -> Speed:
        """Return the figures from the beginning up to now."""
        return Speed(self.records, self.bytes, stopwatch() - self._start)
