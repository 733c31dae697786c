"""How each API is served if topics have virtual partitions.

Every API with a field for a partition, a number of partitions, an offset or a producer id has a row
here; `tests/proxy/virtual/test_apirules.py` compares. APIs without a row are forwarded unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from rookery.proxy.filterapi import Filter
from rookery.proxy.passage import PassageTable, mirror_passages
from rookery.wire.catalog import kafka_apis


class VirtualRoute(Enum):
    """How an API is served."""

    TRANSLATED = "translated"
    """Partitions and offsets are translated."""
    TOPIC_REFUSED = "refused for topics with virtual partitions"
    """Plain topics of the same request are served."""
    HIDDEN = "hidden"
    """The API is not offered: its requests can ask for everything, or clients can do without."""
    PASSED = "passed"
    """Its fields are the same in both spaces."""


VIRTUAL_ROUTES: Final[Mapping[str, VirtualRoute]] = MappingProxyType(
    {
        # Transactions. Their producer ids are not coded, so these pass.
        "AddOffsetsToTxn": VirtualRoute.PASSED,
        "AddPartitionsToTxn": VirtualRoute.TRANSLATED,
        "EndTxn": VirtualRoute.PASSED,
        "InitProducerId": VirtualRoute.PASSED,
        "ListTransactions": VirtualRoute.PASSED,
        "TxnOffsetCommit": VirtualRoute.TRANSLATED,
        # Its answers name the partitions of transactions.
        "DescribeTransactions": VirtualRoute.HIDDEN,
        "WriteTxnMarkers": VirtualRoute.HIDDEN,
        # Its partition is that of the cluster's metadata.
        "DescribeQuorum": VirtualRoute.PASSED,
        # Settings that would break tags or offsets.
        "AlterConfigs": VirtualRoute.TRANSLATED,
        "IncrementalAlterConfigs": VirtualRoute.TRANSLATED,
        # Topics.
        "CreatePartitions": VirtualRoute.TOPIC_REFUSED,
        "CreateTopics": VirtualRoute.TRANSLATED,
        "DeleteRecords": VirtualRoute.TOPIC_REFUSED,
        "DescribeLogDirs": VirtualRoute.HIDDEN,
        "DescribeProducers": VirtualRoute.TOPIC_REFUSED,
        # Clients ask for Metadata instead.
        "DescribeTopicPartitions": VirtualRoute.HIDDEN,
        "ElectLeaders": VirtualRoute.HIDDEN,
        "Fetch": VirtualRoute.TRANSLATED,
        "ListOffsets": VirtualRoute.TRANSLATED,
        "Metadata": VirtualRoute.TRANSLATED,
        # Consumers that do not find it skip the check of their position.
        "OffsetForLeaderEpoch": VirtualRoute.HIDDEN,
        "Produce": VirtualRoute.TRANSLATED,
        # Groups.
        "DeleteGroups": VirtualRoute.TRANSLATED,
        "ListGroups": VirtualRoute.TRANSLATED,
        "OffsetCommit": VirtualRoute.TRANSLATED,
        "OffsetDelete": VirtualRoute.TOPIC_REFUSED,
        "OffsetFetch": VirtualRoute.TRANSLATED,
        # The coordinator would assign physical partitions (KIP-848, KIP-1071).
        "ConsumerGroupDescribe": VirtualRoute.HIDDEN,
        "ConsumerGroupHeartbeat": VirtualRoute.HIDDEN,
        "StreamsGroupDescribe": VirtualRoute.HIDDEN,
        "StreamsGroupHeartbeat": VirtualRoute.HIDDEN,
    }
)

HIDDEN_FEATURES: Final = frozenset({"group.version", "share.version", "streams.version"})
"""Features whose APIs are hidden."""

# Later versions name topics by id. Those of AddPartitionsToTxn are for brokers.
_HIGHEST: Final[Mapping[str, int]] = MappingProxyType(
    {"AddPartitionsToTxn": 3, "Produce": 12, "Fetch": 12, "OffsetCommit": 9, "OffsetFetch": 9}
)
# Earlier versions of Metadata create topics, with the upstream's number of partitions.
_LOWEST: Final[Mapping[str, int]] = MappingProxyType({"Metadata": 4})


def route_of(name: str) -> VirtualRoute:
    """Return the row of an API; those without one pass."""
    return VIRTUAL_ROUTES.get(name, VirtualRoute.PASSED)


def virtual_passages(filters: Sequence[Filter], refused: frozenset[str]) -> PassageTable:
    """Return what passes through a proxy with virtual partitions.

    Args:
        filters: the filters of the virtual cluster.
        refused: the names of further APIs that do not pass.
    """
    hidden = {name for name, route in VIRTUAL_ROUTES.items() if route is VirtualRoute.HIDDEN}
    table = mirror_passages(filters, refused | hidden)
    passages = {}
    for api in kafka_apis().values():
        highest, lowest = _HIGHEST.get(api.name, 0x7FFF), _LOWEST.get(api.name, 0)
        for version in table.versions(api.key):
            passage = table.find((api.key, version))
            if passage is not None and lowest <= version <= highest:
                passages[api.key, version] = passage
    return PassageTable(passages)
