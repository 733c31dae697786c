"""Features that the whole cluster works at: what ApiVersions tells and UpdateFeatures changes."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.cluster.state.state import FEATURE_LEVEL, State

OWN: Final = "rookery.version"
"""The level of the rules by which the cluster's log is applied."""


class Feature(NamedTuple):
    """A feature, the levels that this program knows, and the one that is in force."""

    name: str
    lowest: int
    highest: int
    level: int


def features(state: State) -> list[Feature]:
    """List the features of the cluster."""
    return [Feature(OWN, 1, FEATURE_LEVEL, state.feature_level)]
