"""What all parts of the measurement share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proxyparts.figures import Figures
from proxyparts.rig import Rig, Route


@dataclass(frozen=True)
class Scene:
    """A Kafka, and how much to measure."""

    rig: Rig
    figures: Figures
    rounds: int
    warm_ups: int
    """How many rounds are discarded first: they warm the JVMs of Kafka and Kroxylicious."""
    share: float
    """The share of the records that is used, 1.0 for all."""
    is_quick: bool
    """Whether an earlier scenario of the same kind counts as a warm-up."""
    only: tuple[str, ...] = ()
    """Parts of the names of scenarios; all if empty."""

    def scale(self, count: int) -> int:
        """Return the number of records to use, given that of a full run."""
        return int(count * self.share)

    def turns(self, routes: list[Route], *, is_warm: bool = False) -> Iterator[tuple[int, Route]]:
        """Return each route in each round; rounds that warm up have numbers below 0.

        Args:
            routes: to take in turns.
            is_warm: whether an earlier scenario has warmed them; a quick run relies on that.
        """
        warm_ups = 0 if is_warm and self.is_quick else self.warm_ups
        for number in range(-warm_ups, self.rounds):
            # Each route is the first in one round, so that none has the best place.
            start = number % len(routes)
            for route in routes[start:] + routes[:start]:
                yield number, route

    def tell(self, number: int, route: Route, what: str, values: dict[str, float]) -> None:
        """Print the figures of one run."""
        step = "warm-up" if number < 0 else f"round {number + 1}"
        shown = ", ".join(f"{key} {value:,.2f}" for key, value in values.items())
        self.figures.say(f"{step}  {route.name:<12} {what:<26} {shown}")

    def wants(self, name: str) -> bool:
        """Return whether a scenario is to be measured."""
        return not self.only or any(part in name for part in self.only)
