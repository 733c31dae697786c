"""The figures of all routes, and what the project asks of our proxy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Bar:
    """The floor and the goal of our figure, or of its ratio to that of Kroxylicious."""

    name: str
    floor: float
    goal: float
    is_less_better: bool = False

    def has_floor(self, value: float) -> bool:
        """Return whether a value reaches the floor."""
        return value <= self.floor if self.is_less_better else value >= self.floor

    def has_goal(self, value: float) -> bool:
        """Return whether a value reaches the goal."""
        return value <= self.goal if self.is_less_better else value >= self.goal


PRODUCE: Final = Bar("share of direct throughput, produce: ratio", 0.9, 1.0)
CONSUME: Final = Bar("share of direct throughput, consume: ratio", 1.0, 1.2)
CPU: Final = Bar("proxy CPU per GB: ratio", 1.0, 0.5, is_less_better=True)
P50: Final = Bar("added latency p50: ratio", 1.0, 0.5, is_less_better=True)
P99: Final = Bar("added latency p99: ratio", 1.0, 0.7, is_less_better=True)
MEMORY: Final = Bar("memory per idle connection, KB", 50.0, 20.0, is_less_better=True)
ENCRYPTION: Final = Bar("encryption filter: share of pass-through throughput", 0.5, 0.7)
BARS: Final = (PRODUCE, CONSUME, CPU, P50, P99, MEMORY, ENCRYPTION)


@dataclass(frozen=True)
class Figure:
    """One row of the result."""

    what: str
    unit: str
    direct: float | None
    ours: float
    peer: float
    ours_to_direct: float | None = None
    """Throughput: our share of direct. Latency: what our proxy adds."""
    peer_to_direct: float | None = None
    bar: Bar | None = None

    @property
    def ratio(self) -> float | None:
        """Ours to Kroxylicious; None if one of them seems to cost nothing, which is noise."""
        ours, peer = self.ours, self.peer
        if self.ours_to_direct is not None and self.peer_to_direct is not None:
            ours, peer = self.ours_to_direct, self.peer_to_direct
        return ours / peer if ours > 0 and peer > 0 else None

    @property
    def judged(self) -> float | None:
        """The value that the bar is about."""
        return self.ours if self.bar is MEMORY else self.ratio

    @property
    def verdict(self) -> str:
        """Whether the floor and the goal are reached."""
        if self.bar is None:
            return ""
        if self.judged is None:
            return "unclear"
        if not self.bar.has_floor(self.judged):
            return "MISSED"
        return "goal met" if self.bar.has_goal(self.judged) else "floor met"


@dataclass
class Figures:
    """All figures so far; each is printed when it is added."""

    console: Console
    rows: list[Figure] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Print how far the run is."""
        self.console.print(text, highlight=False, markup=False)

    def add(self, row: Figure) -> None:
        """Keep and print a figure."""
        self.rows.append(row)
        numbers = f"ours {_text(row.ours)}, Kroxylicious {_text(row.peer)}"
        direct = "" if row.direct is None else f"direct {_text(row.direct)}, "
        self.say(f"= {row.what}: {direct}{numbers} {row.unit} {row.verdict}")

    def as_json(self) -> list[dict[str, object]]:
        """Return all rows for a program."""
        return [
            {
                **asdict(row),
                "bar": row.bar.name if row.bar else None,
                "ratio": row.ratio,
                "verdict": row.verdict,
            }
            for row in self.rows
        ]

    def show(self, title: str) -> None:
        """Print all figures, then what is met of what is asked."""
        table = Table(title=title)
        heads = ("direct", "ours", "Kroxylicious", "ours to direct", "Kroxylicious to direct")
        for name in ("what", "unit", *heads, "ratio", ""):
            is_text = name in {"what", "unit", ""}
            table.add_column(name, justify="left" if is_text else "right")
        for row in self.rows:
            numbers = (row.direct, row.ours, row.peer, row.ours_to_direct, row.peer_to_direct)
            table.add_row(row.what, row.unit, *map(_text, (*numbers, row.ratio)), row.verdict)
        self.console.print(table)
        self._show_bars()

    def _show_bars(self) -> None:
        table = Table(title="floors and goals; the ratios are ours to Kroxylicious")
        for name in ("what", "worst", "best", "floor", "floor met", "goal", "goal met"):
            table.add_column(name, justify="left" if name == "what" else "right")
        for bar in BARS:
            rows = [row for row in self.rows if row.bar is bar]
            if rows:
                table.add_row(bar.name, *_judge(bar, rows))
        self.console.print(table)


def _judge(bar: Bar, rows: Sequence[Figure]) -> list[str]:
    """Return the cells of a bar's row; a row that is unclear meets nothing."""
    values = [row.judged for row in rows if row.judged is not None]
    ordered = sorted(values, reverse=bar.is_less_better) or [None]
    sign = "≤ " if bar.is_less_better else "≥ "
    floors, goals = sum(map(bar.has_floor, values)), sum(map(bar.has_goal, values))
    return [
        _text(ordered[0]),
        _text(ordered[-1]),
        f"{sign}{bar.floor:g}",
        f"{floors} of {len(rows)}",
        f"{sign}{bar.goal:g}",
        f"{goals} of {len(rows)}",
    ]


def _text(value: float | None) -> str:
    """Return a number with as many digits as matter."""
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"
