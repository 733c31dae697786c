"""Cluster-wide features: advertised by ApiVersions, changed by UpdateFeatures."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.cluster.state.state import FEATURE_LEVEL, State


class Feature(NamedTuple):
    """A feature, the range of levels this release supports, and the current level."""

    name: str
    lowest: int
    highest: int
    level: int


OWN: Final = "rookery.version"
"""The version of the rules for applying the cluster log."""
_TRANSACTIONS: Final = Feature("transaction.version", 1, 2, 2)
"""Kafka's feature: at 2, clients bump the epoch for every transaction (KIP-890)."""
_GROUPS: Final = Feature("group.version", 0, 1, 1)
"""Kafka's feature: at 1, clients know that the consumer protocol is served (KIP-848)."""


def features(state: State) -> list[Feature]:
    """Return the features of the cluster."""
    return [Feature(OWN, 1, FEATURE_LEVEL, state.feature_level), _TRANSACTIONS, _GROUPS]
