"""How each version of each API passes through the proxy.

The table has one row for each API and version that the proxy knows. A request without a row is
refused: its connection is closed after the responses before it, because an unknown request has no
known form of response.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rookery.proxy.addresses import can_hold_addresses
from rookery.proxy.filterapi import Filter, needs_note
from rookery.proxy.filterchain import FilterStep
from rookery.wire.catalog import kafka_apis
from rookery.wire.codec import API_VERSIONS_KEY
from rookery.wire.message import Api
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.produce import PRODUCE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE
from rookery.wire.messages.share_acknowledge import SHARE_ACKNOWLEDGE
from rookery.wire.messages.share_fetch import SHARE_FETCH
from rookery.wire.messages.sync_group import SYNC_GROUP

# Brokers and controllers send these to each other; no client does.
_INTERNAL: Final = frozenset(
    {
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "BeginQuorumEpoch",
        "BrokerHeartbeat",
        "BrokerRegistration",
        "ControllerRegistration",
        "DeleteShareGroupState",
        "EndQuorumEpoch",
        "Envelope",
        "FetchSnapshot",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "ReadShareGroupStateSummary",
        "UpdateRaftVoter",
        "Vote",
        "WriteShareGroupState",
    }
)
# Responses that hold an address only to correct a client's stale view of the leaders (KIP-951).
_WITH_HINTS: Final = frozenset({PRODUCE, FETCH, SHARE_FETCH, SHARE_ACKNOWLEDGE})
# The coordinator answers these when the whole group has joined.
_SLOW: Final = frozenset({JOIN_GROUP, SYNC_GROUP})


@dataclass(frozen=True, slots=True)
class Passage:
    """How one version of an API passes."""

    api: Api[Any, Any]
    version: int
    has_addresses: bool
    """Whether the response holds addresses of brokers, so that it is decoded."""
    has_hints: bool
    """Whether these addresses are hints in a response that rarely has any."""
    can_be_one_way: bool
    """Whether a request may have no response."""
    is_slow: bool
    """Whether the response may take as long as a rebalance."""
    is_plain: bool = False
    """Whether nothing but the correlation ids is read or changed."""
    request_filters: tuple[FilterStep, ...] = ()
    """The functions that see the request, in order; without any, it is not decoded."""
    response_filters: tuple[FilterStep, ...] = ()
    """The functions that see the response, in order."""

    @property
    def is_filtered(self) -> bool:
        """Whether any filter sees the request or the response."""
        return bool(self.request_filters or self.response_filters)

    @property
    def is_api_versions(self) -> bool:
        """Whether the response lists what the client may send next."""
        return self.api.key == API_VERSIONS_KEY


class PassageTable:
    """The passage of every API and version that is let through."""

    def __init__(self, passages: Mapping[tuple[int, int], Passage]) -> None:
        self._passages = dict(passages)
        self.find = self._passages.get
        """Return the passage of an API's key and version, a tuple; None if it is refused."""
        # Every new client asks for all of them.
        self._versions: dict[int, range] = {}
        for key, version in sorted(self._passages):
            first = self._versions.get(key, range(version, version)).start
            self._versions[key] = range(first, version + 1)

    def rows(self) -> Collection[Passage]:
        """Return all passages."""
        return self._passages.values()

    def versions(self, key: int) -> range:
        """Return the versions of an API that are let through; empty if there are none."""
        return self._versions.get(key, range(0))


def mirror_passages(
    filters: Sequence[Filter] = (), refused: frozenset[str] = frozenset()
) -> PassageTable:
    """Return the table for clients whose connections are mirrored, one for one.

    SaslHandshake 0 is missing: bare tokens follow it, without a header that could be renumbered.

    Args:
        filters: the filters of the virtual cluster, in the order of its configuration.
        refused: the names of further APIs that do not pass.
    """
    return PassageTable(
        {
            (api.key, version): _passage(api, version, filters)
            for api in kafka_apis().values()
            if api.name not in _INTERNAL | refused
            for version in api.versions
            if (api.key, version) != (SASL_HANDSHAKE.key, 0)
        }
    )


def _passage(api: Api[Any, Any], version: int, filters: Sequence[Filter]) -> Passage:
    has_addresses = can_hold_addresses(api)
    if api in _WITH_HINTS:
        # Older versions of these have none.
        has_addresses = api.response.__fields__["node_endpoints"].is_in(version)
    request_filters = _steps(filters, "request", api)
    response_filters = _steps(filters, "response", api)
    is_changed = has_addresses or api.key == API_VERSIONS_KEY
    is_read = is_changed or api.has_one_way_requests or request_filters or response_filters
    return Passage(
        api=api,
        version=version,
        has_addresses=has_addresses,
        has_hints=has_addresses and api in _WITH_HINTS,
        can_be_one_way=api.has_one_way_requests,
        is_slow=api in _SLOW,
        is_plain=not is_read,
        request_filters=request_filters,
        # The filter that saw the request last sees the response first.
        response_filters=tuple(sorted(response_filters, key=lambda step: -step.position)),
    )


def _steps(filters: Sequence[Filter], kind: str, api: Api[Any, Any]) -> tuple[FilterStep, ...]:
    return tuple(
        FilterStep(position, function, each if needs_note(function) else None)
        for position, each in enumerate(filters)
        for function in each.functions(kind, api)
    )
