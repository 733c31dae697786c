"""The API versions and features that every broker of the upstream knows.

A part of a request can go to any broker, in the version in which the client has sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rookery.clock import Clock
from rookery.errors import Error
from rookery.net.upstream import Upstream
from rookery.proxy.access.upstreamversions import UpstreamVersions
from rookery.proxy.apiversions import common_features
from rookery.proxy.nodes.topology import UpstreamTopology
from rookery.proxy.passage import PassageTable
from rookery.proxy.settings import ProxySettings
from rookery.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

_PATIENCE_SECONDS: Final = 2.0
_HIDDEN_FEATURES: Final = frozenset({"share.version"})


class NodeVersions(UpstreamVersions):
    """The versions that all brokers have in common, kept for a time."""

    def __init__(
        self,
        connect: Callable[[int | None], Awaitable[Upstream]],
        passages: PassageTable,
        limits: ProxySettings,
        clock: Clock,
        topology: UpstreamTopology,
    ) -> None:
        """Start without any.

        Args:
            connect: connects to a broker, or to any if there is no node id.
            passages: the APIs and versions that the proxy forwards.
            limits: the timeout, and the age at which brokers are asked again.
            clock: times the age.
            topology: the brokers.
        """
        super().__init__(connect, passages, limits, clock)
        self._topology = topology
        self.hidden_features = _HIDDEN_FEATURES
        """Features that are left out."""

    async def ask(self, node_id: int | None) -> ApiVersionsResponse:
        """Ask all brokers; those that do not answer do not count, unless none does."""
        del node_id
        brokers = sorted(self._topology.brokers)
        answers = await asyncio.gather(*map(self._ask_one, brokers))
        offered = [each for each in answers if each is not None]
        if not offered:
            offered = [await super().ask(None)]
        # The brokers agree on the finalized features; the newest answer is that of the last epoch.
        common = max(offered, key=lambda each: each.finalized_features_epoch)
        common.supported_features = common_features(offered)
        common.api_keys = common_versions([each.api_keys for each in offered])
        hide_features(common, self.hidden_features)
        return common

    async def _ask_one(self, broker_id: int) -> ApiVersionsResponse | None:
        """Ask a broker; return None if it does not answer soon, so that clients need not wait."""
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await super().ask(broker_id)
        except (Error, TimeoutError):
            return None


def common_versions(offered: list[list[ApiVersion]]) -> list[ApiVersion]:
    """Return the versions of each API that all brokers know."""
    ranges = [{row.api_key: row for row in rows} for rows in offered]
    common = []
    for key in ranges[0]:
        rows = [each[key] for each in ranges if key in each]
        lowest = max(row.min_version for row in rows)
        highest = min(row.max_version for row in rows)
        if len(rows) == len(ranges) and lowest <= highest:
            common.append(ApiVersion(api_key=key, min_version=lowest, max_version=highest))
    return common


def hide_features(answer: ApiVersionsResponse, hidden: frozenset[str] = _HIDDEN_FEATURES) -> None:
    """Leave out the features whose APIs broker nodes do not offer, in place."""
    answer.supported_features = [
        each for each in answer.supported_features if each.name not in hidden
    ]
    answer.finalized_features = [
        each for each in answer.finalized_features if each.name not in hidden
    ]
