"""In-process metrics, exposed in Prometheus' text format (version 0.0.4).

Define a metric as a constant in the module that updates it. Name it
`rookery_<folder>_<what>_<unit>`:

    REQUESTS = metrics.counters("rookery_broker_requests_total", "Requests by API.", ("api",))
    ...
    REQUESTS.labels("Produce").inc()

On a hot path, keep the child that `labels` returns. An update changes one attribute and takes no
lock, because the interpreter does not switch threads within it.
"""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of an HTTP response that carries `Registry.expose`."""

SECONDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Histogram bounds for durations, from a cached response to a broken disk."""
BYTES: Final = tuple(float(64 << shift) for shift in range(0, 22, 2))
"""Histogram bounds for sizes: 64 B to 64 MiB, each four times the previous one."""
COUNTS: Final = tuple(float(1 << shift) for shift in range(0, 17, 2))
"""Histogram bounds for counts: 1 to 65 536."""

MAX_CHILDREN: Final = 1000
"""The default limit for the sets of label values that a metric tracks separately."""
OTHER: Final = "other"
"""The label value of the child that counts everything above that limit."""

_BLOCK_LINES: Final = 500
# Dashboards expect standard process metrics under names that start with `process_`.
_NAME = re.compile(r"(rookery(_[a-z][a-z0-9]*){2,}|process(_[a-z]+)+)")
_LABEL = re.compile(r"[a-z][a-z0-9_]*")


class Child(Protocol):
    """One number or histogram that is exposed under its metric's name."""

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the samples; `labels` is the text between the braces, or empty."""


T = TypeVar("T", bound=Child)


class Counter:
    """A value that only increases."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Increase the counter by 1 or by `amount`."""
        self.value += amount

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the one sample."""
        yield _sample(name, labels, self.value)


class Gauge:
    """A value that goes up and down; it is set, or read from a function when it is exposed."""

    __slots__ = ("_read", "value")

    def __init__(self) -> None:
        self.value: float = 0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Set the current value."""
        self.value = value

    def inc(self, amount: float = 1) -> None:
        """Increase the value by 1 or by `amount`."""
        self.value += amount

    def dec(self, amount: float = 1) -> None:
        """Decrease the value by 1 or by `amount`."""
        self.value -= amount

    def follow(self, read: Callable[[], float] | None) -> None:
        """Read the value from a function at exposition; None restores the value that was set."""
        self._read = read

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the one sample, or none if the function fails."""
        value = self.value
        if self._read is not None:
            try:
                value = self._read()
            except Exception:
                # One failing gauge must not hide the other metrics, which are needed most during a
                # fault.
                log.exception("cannot read the gauge %s", name, extra={"metric": name})
                return
        yield _sample(name, labels, value)


MetricReading: TypeAlias = tuple[Counter | Gauge, Callable[[], float]]
"""A metric and the function that supplies its value when the metrics are reported."""


class Histogram:
    """A distribution of values over fixed buckets, with their count and sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        # One more than there are bounds: the last bucket is for values above all bounds.
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count a value; a value equal to a bound belongs to that bound's bucket."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the cumulative buckets, then the sum and the count."""
        prefix = f"{name}_bucket{{{labels}," if labels else f"{name}_bucket{{"
        below = 0
        for bound, count in zip((*self.bounds, math.inf), self.counts, strict=True):
            below += count
            yield f'{prefix}le="{_number(bound)}"}} {below}'
        yield _sample(f"{name}_sum", labels, self.sum)
        yield _sample(f"{name}_count", labels, below)


class Family(Generic[T]):
    """A metric with labels: one child for each set of label values, up to a limit.

    When the limit is reached, new label values share one child whose labels are all `other`.
    """

    __slots__ = ("_children", "_make", "_max_children", "_texts", "names")

    def __init__(self, make: Callable[[], T], names: Sequence[str], max_children: int) -> None:
        self._make = make
        self.names = tuple(names)
        self._max_children = max_children
        self._children: dict[tuple[str, ...], T] = {}
        self._texts: dict[tuple[str, ...], str] = {}

    def __len__(self) -> int:
        return len(self._children)

    def labels(self, *values: str) -> T:
        """Return the child with these values, in the order in which the labels were declared."""
        child = self._children.get(values)
        return self._add(values) if child is None else child

    def remove(self, *values: str) -> None:
        """Stop exposing a child; updates through a reference to it no longer have any effect."""
        self._children.pop(values, None)
        self._texts.pop(values, None)

    def lines(self, name: str) -> Iterator[str]:
        """Yield the samples of all children."""
        # Iterate over a copy, because a gauge's function may create a child.
        for values, child in list(self._children.items()):
            yield from child.lines(name, self._texts[values])

    def _add(self, values: tuple[str, ...]) -> T:
        if len(values) != len(self.names):
            raise ValueError(f"{len(values)} values for the labels {', '.join(self.names)}")
        if len(self._children) >= self._max_children:
            values = (OTHER,) * len(values)
            if values in self._children:
                return self._children[values]
        pairs = zip(self.names, values, strict=True)
        self._texts[values] = ",".join(f'{name}="{_escape(value)}"' for name, value in pairs)
        child = self._children[values] = self._make()
        return child


class Registry:
    """The metrics of a program by name."""

    __slots__ = ("_metrics",)

    def __init__(self) -> None:
        self._metrics: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {}

    def counter(self, name: str, meaning: str) -> Counter:
        """Declare a counter; its name must end in `_total`."""
        return self._declare_one("counter", name, meaning, Counter())

    def counters(
        self, name: str, meaning: str, labels: Sequence[str], max_children: int = MAX_CHILDREN
    ) -> Family[Counter]:
        """Declare counters with labels; the name must end in `_total`."""
        family = Family(Counter, labels, max_children)
        return self._declare_family("counter", name, meaning, family)

    def gauge(self, name: str, meaning: str, read: Callable[[], float] | None = None) -> Gauge:
        """Declare a gauge, optionally with a function that supplies its value."""
        gauge = self._declare_one("gauge", name, meaning, Gauge())
        gauge.follow(read)
        return gauge

    def gauges(
        self, name: str, meaning: str, labels: Sequence[str], max_children: int = MAX_CHILDREN
    ) -> Family[Gauge]:
        """Declare gauges with labels."""
        return self._declare_family("gauge", name, meaning, Family(Gauge, labels, max_children))

    def histogram(self, name: str, meaning: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """Declare a histogram with ascending bounds."""
        histogram = Histogram(_check_bounds(name, bounds))
        return self._declare_one("histogram", name, meaning, histogram)

    def histograms(
        self,
        name: str,
        meaning: str,
        labels: Sequence[str],
        bounds: Sequence[float] = SECONDS,
        max_children: int = MAX_CHILDREN,
    ) -> Family[Histogram]:
        """Declare histograms with labels."""
        bounds = _check_bounds(name, bounds)
        family = Family(lambda: Histogram(bounds), labels, max_children)
        return self._declare_family("histogram", name, meaning, family)

    def blocks(self) -> Iterator[str]:
        """Yield the text in blocks of whole lines, each small enough to build quickly."""
        for head, lines in list(self._metrics.values()):
            block = [head]
            for line in lines():
                block.append(line)
                if len(block) == _BLOCK_LINES:
                    yield "\n".join([*block, ""])
                    block = []
            if block:
                yield "\n".join([*block, ""])

    def expose(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return "".join(self.blocks())

    def _declare_one(self, kind: str, name: str, meaning: str, child: T) -> T:
        self._declare(kind, name, meaning, lambda: child.lines(name, ""))
        return child

    def _declare_family(self, kind: str, name: str, meaning: str, family: Family[T]) -> Family[T]:
        if not family.names or len(set(family.names)) != len(family.names):
            raise ValueError(f"{name}: labels must be given, each once")
        for label in family.names:
            if not _LABEL.fullmatch(label) or label == "le":
                raise ValueError(f"{name}: {label!r} cannot be a label")
        self._declare(kind, name, meaning, lambda: family.lines(name))
        return family

    def _declare(
        self, kind: str, name: str, meaning: str, lines: Callable[[], Iterator[str]]
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not rookery_<folder>_<what>_<unit>")
        if name.endswith("_total") != (kind == "counter"):
            raise ValueError(f"{name}: counters end in _total, and nothing else does")
        if name in self._metrics:
            raise ValueError(f"{name} is declared twice")
        help_text = meaning.replace("\\", "\\\\").replace("\n", "\\n")
        self._metrics[name] = f"# HELP {name} {help_text}\n# TYPE {name} {kind}", lines


def _check_bounds(name: str, bounds: Sequence[float]) -> tuple[float, ...]:
    ascending = sorted(set(bounds))
    if not bounds or list(bounds) != ascending or not all(map(math.isfinite, bounds)):
        raise ValueError(f"{name}: bounds must be finite and ascend: {bounds}")
    return tuple(bounds)


def _sample(name: str, labels: str, value: float) -> str:
    return f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value + 0)  # True is 1


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


REGISTRY: Final = Registry()
"""The registry of this program; the functions below declare metrics in it."""

counter = REGISTRY.counter
counters = REGISTRY.counters
gauge = REGISTRY.gauge
gauges = REGISTRY.gauges
histogram = REGISTRY.histogram
histograms = REGISTRY.histograms
