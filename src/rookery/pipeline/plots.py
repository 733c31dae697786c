"""Plots as SVG text, for a single-file report that needs no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, TypeVar

_WIDTH: Final = 860
_HEIGHT: Final = 240
_LEFT: Final = 64
_BOTTOM: Final = 28
_TOP: Final = 12
_COLOURS: Final = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b8a000",
)  # fmt: skip
_MAX_POINTS: Final = 600

T = TypeVar("T")
Series = Mapping[str, Sequence[tuple[float, float]]]
"""By name, points ordered by x."""


def lines(series: Series, unit: str) -> str:
    """Return a plot with a line for each series; x is seconds."""
    points = [point for curve in series.values() for point in curve]
    if not points:
        return _nothing()
    frame = _Frame(points, unit)
    parts = [frame.axes()]
    for number, curve in enumerate(series.values()):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in _thin(curve))
        colour = _colour(number)
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{path}"/>'
        )
    return _svg(parts) + _legend(list(series))


def stacks(series: Series, unit: str) -> str:
    """Return a stacked bar plot."""
    names = list(series)
    columns: dict[float, list[float]] = {}
    for number, points in enumerate(series.values()):
        for x, y in points:
            columns.setdefault(x, [0.0] * len(names))[number] = y
    if not columns:
        return _nothing()
    shown = _thin(sorted(columns.items()))
    frame = _Frame([(x, sum(values)) for x, values in shown], unit)
    width = max((_WIDTH - _LEFT) / len(shown) - 1, 1)
    parts = [frame.axes()]
    for x, values in shown:
        base = 0.0
        for number, value in enumerate(values):
            top, bottom = frame.y(base + value), frame.y(base)
            left = min(frame.x(x), _WIDTH - width)
            parts.append(
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}"'
                f' height="{max(bottom - top, 0):.1f}" fill="{_colour(number)}"/>'
            )
            base += value
    return _svg(parts) + _legend(names)


def bars(values: Mapping[str, float], unit: str) -> str:
    """Return a plot with a bar for each name."""
    if not values:
        return _nothing()
    highest = max(values.values()) or 1
    rows = []
    for name, value in values.items():
        share = 100 * value / highest
        rows.append(
            f'<div class="bar"><span>{escape(name)}</span>'
            f'<i style="width:{share * 0.6:.1f}%"></i><b>{_number(value)} {escape(unit)}</b></div>'
        )
    return "".join(rows)


class _Frame:
    def __init__(self, points: Sequence[tuple[float, float]], unit: str) -> None:
        self._unit = unit
        self._from = min(x for x, _ in points)
        self._to = max(x for x, _ in points)
        self._high = max([1e-9, *(y for _, y in points)])

    def x(self, value: float) -> float:
        span = (self._to - self._from) or 1
        return _LEFT + (value - self._from) / span * (_WIDTH - _LEFT - 8)

    def y(self, value: float) -> float:
        return _TOP + (1 - value / self._high) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> str:
        parts = []
        for share in (0, 0.25, 0.5, 0.75, 1):
            y = self.y(self._high * share)
            parts.append(
                f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH}" y2="{y:.1f}" class="grid"/>'
                f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">'
                f"{_number(self._high * share)}</text>"
            )
        seconds = self._to - self._from
        parts.append(
            f'<text x="{_LEFT}" y="{_HEIGHT - 8}">0 s</text>'
            f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 8}" text-anchor="end">'
            f"{_number(seconds)} s</text>"
            f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">'
            f"{escape(self._unit)}</text>"
        )
        return "".join(parts)


def _thin(points: Sequence[tuple[float, T]]) -> list[tuple[float, T]]:
    """Thin out points if there are more than can be displayed."""
    step = max(1, -(-len(points) // _MAX_POINTS))
    return list(points[::step])


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _legend(names: Sequence[str]) -> str:
    items = "".join(
        f'<span><i style="background:{_colour(number)}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<div class="legend">{items}</div>'


def _nothing() -> str:
    return "<p>There are no figures yet.</p>"


def _number(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
