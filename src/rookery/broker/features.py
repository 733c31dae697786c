"""Features that the whole cluster works at: what ApiVersions tells and UpdateFeatures changes."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.cluster.state.state import FEATURE_LEVEL, State


class Feature(NamedTuple):
    """A feature, the levels that this program knows, and the one that is in force."""

    name: str
    lowest: int
    highest: int
    level: int


OWN: Final = "rookery.version"
"""The level of the rules by which the cluster's log is applied."""
_TRANSACTIONS: Final = Feature("transaction.version", 1, 2, 2)
"""Kafka's own: by 2 clients know that every transaction gets an epoch of its own (KIP-890)."""
_GROUPS: Final = Feature("group.version", 0, 1, 1)
"""Kafka's own: by 1 clients know that groups of the consumer protocol are served (KIP-848)."""


def features(state: State) -> list[Feature]:
    """List the features of the cluster."""
    return [Feature(OWN, 1, FEATURE_LEVEL, state.feature_level), _TRANSACTIONS, _GROUPS]
