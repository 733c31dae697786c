"""Whether the filters of a virtual cluster fail."""

from __future__ import annotations

from typing import Final

from rookery import metrics
from rookery.clock import Clock

_FAULTS: Final = metrics.counters(
    "rookery_proxy_filter_faults_total",
    "Messages on which a filter failed or did not decide in time.",
    ("cluster",),
)
# Long enough for a probe to see it, short enough to end soon after the filter works again.
_MEMORY_MS: Final = 60_000


class FilterHealth:
    """Remembers the last fault of any filter of one virtual cluster for a minute."""

    def __init__(self, cluster: str, clock: Clock) -> None:
        """Know of no fault.

        Args:
            cluster: the name of the virtual cluster.
            clock: times the faults.
        """
        self._faults = _FAULTS.labels(cluster)
        self._clock = clock
        self._last = ""
        self._last_ms = 0

    def report(self, fault: str) -> None:
        """Record a fault."""
        self._faults.inc()
        self._last = fault
        self._last_ms = self._clock.monotonic_ms()

    @property
    def trouble(self) -> str:
        """The last fault, if it is not older than a minute."""
        is_recent = self._last and self._clock.monotonic_ms() - self._last_ms < _MEMORY_MS
        return f"a filter has failed: {self._last}" if is_recent else ""
