"""Measured figures and their goals."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One row of the result."""

    part: str
    what: str
    value: float
    unit: str
    peer: float | None = None
    """What it is compared with, measured in the same run."""
    floor: float | None = None
    """What the value, or its ratio to the peer, must reach."""
    goal: float | None = None
    is_less_better: bool = False

    @property
    def ratio(self) -> float | None:
        """The value against its peer's."""
        return self.value / self.peer if self.peer else None

    @property
    def verdict(self) -> str:
        """Whether the floor and the goal are reached."""
        if self.floor is None:
            return ""
        if not self._reaches(self.floor):
            return "MISSED"
        return "met" if self.goal is None or self._reaches(self.goal) else "met, goal not"

    def _reaches(self, bound: float) -> bool:
        judged = self.value if self.ratio is None else self.ratio
        return judged <= bound if self.is_less_better else judged >= bound


@dataclass
class Figures:
    """All figures so far, reported as they come."""

    console: Console
    rows: list[Figure] = field(default_factory=list)

    def add(self, row: Figure) -> None:
        """Note and tell one."""
        self.rows.append(row)
        peer = "" if row.peer is None else f" against {_text(row.peer)}: {_text(row.ratio)}"
        self.say(f"{row.part}: {row.what}: {_text(row.value)} {row.unit}{peer} {row.verdict}")

    def say(self, text: str) -> None:
        """Report the progress."""
        self.console.print(text, highlight=False, markup=False)

    def as_json(self) -> list[dict[str, object]]:
        """Return all rows for a program."""
        return [{**asdict(row), "ratio": row.ratio, "verdict": row.verdict} for row in self.rows]

    def show(self, title: str) -> None:
        """Print the table."""
        table = Table(title=title)
        for name in ("part", "what", "measured", "unit", "peer", "ratio", "floor", "goal", ""):
            is_text = name in {"part", "what", "unit", ""}
            table.add_column(name, justify="left" if is_text else "right")
        for row in self.rows:
            sign = "≤ " if row.is_less_better else "≥ "
            bounds = [
                "" if bound is None else f"{sign}{bound:g}" for bound in (row.floor, row.goal)
            ]
            numbers = [_text(row.peer), _text(row.ratio)]
            table.add_row(
                row.part, row.what, _text(row.value), row.unit, *numbers, *bounds, row.verdict
            )
        self.console.print(table)


def _text(value: float | None) -> str:
    """Return a number with as many digits as matter."""
    if value is None:
        return ""
    return f"{value:.4f}" if 0 < abs(value) < 0.1 else f"{value:,.2f}"
