"""What all parts of the measurement share."""

from __future__ import annotations

from dataclasses import dataclass

from proxyparts.figures import Figures
from proxyparts.rig import Rig


@dataclass(frozen=True)
class Scene:
    """A Kafka, and how much to measure."""

    rig: Rig
    figures: Figures
    rounds: int
    warm_ups: int
    """How many rounds are discarded first: they warm the JVMs of Kafka and Kroxylicious."""
    is_quick: bool
    only: tuple[str, ...] = ()
    """Parts of the names of scenarios; all if empty."""

    def scale(self, count: int) -> int:
        """Return how many records to use for a full count."""
        return count // 10 if self.is_quick else count

    def wants(self, name: str) -> bool:
        """Return whether a scenario is to be measured."""
        return not self.only or any(part in name for part in self.only)
