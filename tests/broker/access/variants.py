"""Requests that ask for everything, for several groups, as a replica, or in a transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from rookery.records.recordcodec import BatchSettings
from rookery.wire.messages.describe_topic_partitions import Cursor
from rookery.wire.messages.fetch import ReplicaState
from tests.broker.raw import batch

OTHER_GROUP, OTHER_ID = "missing-group", "missing-id"
SHARE_KEY = "group-a:AAAAAAAAAAAAAAAAAAAAAA:0"
_OFFSETS_OF_GROUPS = 8
_REPLICA_STATE = 15
_KEYS = 4


class Variant(NamedTuple):
    """A change of the request that an API gets otherwise."""

    change: Callable[[Any, int], None]
    """Changes a request of a version."""
    since: int = 0
    until: int = 1_000


def _set(**values: Any) -> Callable[[Any, int], None]:
    def change(request: Any, _version: int) -> None:
        for name, value in values.items():
            setattr(request, name, value)

    return change


def _name_all_topics(request: Any, version: int) -> None:
    request.topics = None if version else []


def _fetch_all_offsets(request: Any, version: int) -> None:
    if version < _OFFSETS_OF_GROUPS:
        request.topics = None
    else:
        request.groups[0].topics = None


def _fetch_offsets_of_groups(request: Any, _version: int) -> None:
    [group] = request.groups
    request.groups = [group, group.replace(group_id=OTHER_GROUP)]


def _fetch_as_replica(request: Any, version: int) -> None:
    if version < _REPLICA_STATE:
        request.replica_id = 1
    else:
        request.replica_state = ReplicaState(replica_id=1, replica_epoch=-1)


def _write_in_transaction(
    request: Any, _version: int, transactional_id: str | None = "txn-a"
) -> None:
    request.transactional_id = transactional_id
    settings = BatchSettings(
        producer_id=1_000_000, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    for topic in request.topic_data:
        for part in topic.partition_data:
            part.records = batch(b"x", settings=settings)


def _find_two(request: Any, _version: int) -> None:
    request.coordinator_keys = [*request.coordinator_keys, OTHER_GROUP]


def _find_share(request: Any, version: int) -> None:
    request.key_type = 2
    request.key = SHARE_KEY
    request.coordinator_keys = [SHARE_KEY] if version >= _KEYS else []


def _name_each_type(request: Any, _version: int) -> None:
    """Name a topic, a broker, a group, and a topic that no rule covers."""
    [resource] = request.resources
    request.resources = [
        resource.replace(resource_type=kind, resource_name=name)
        for kind, name in ((2, "known"), (4, "1"), (32, "group-a"), (32, OTHER_GROUP), (2, "none"))
    ]


def _continue_after(request: Any, _version: int, topic: str, partition: int = 0) -> None:
    request.cursor = Cursor(topic_name=topic, partition_index=partition)


def _continue_with_all(request: Any, version: int, topic: str) -> None:
    request.topics = []
    _continue_after(request, version, topic)


def _add_missing_partition(request: Any, _version: int) -> None:
    for topic in request.v3_and_below_topics:
        topic.partitions = [0, 7]


VARIANTS: Mapping[str, Mapping[str, Variant]] = {
    "Metadata": {"all": Variant(_name_all_topics)},
    "OffsetFetch": {
        "all": Variant(_fetch_all_offsets, since=2),
        "two groups": Variant(_fetch_offsets_of_groups, since=_OFFSETS_OF_GROUPS),
    },
    "DescribeTopicPartitions": {
        "all": Variant(_set(topics=[])),
        "from a topic": Variant(partial(_continue_after, topic="known")),
        "from a missing topic": Variant(partial(_continue_after, topic="kn-missing")),
        "from another topic": Variant(partial(_continue_after, topic="kn-other")),
        "after all topics": Variant(partial(_continue_after, topic="z")),
        "all from a topic": Variant(partial(_continue_with_all, topic="known")),
        "all from another topic": Variant(partial(_continue_with_all, topic="kn-other")),
        "from no partition": Variant(partial(_continue_after, topic="known", partition=-1)),
    },
    "DescribeConfigs": {"each type": Variant(_name_each_type)},
    "AlterConfigs": {"each type": Variant(_name_each_type)},
    "IncrementalAlterConfigs": {"each type": Variant(_name_each_type)},
    "DescribeLogDirs": {"all": Variant(_set(topics=None))},
    "ElectLeaders": {"all": Variant(_set(topic_partitions=None))},
    "ListPartitionReassignments": {"all": Variant(_set(topics=None))},
    "Fetch": {"as a replica": Variant(_fetch_as_replica)},
    "Produce": {
        "transactional": Variant(_write_in_transaction),
        # Such a request must not evade the permission on the id (CVE-2018-17196).
        "transactional without an id": Variant(
            lambda request, version: _write_in_transaction(request, version, None)
        ),
    },
    "DescribeGroups": {"two groups": Variant(_set(groups=["group-a", OTHER_GROUP]))},
    "ConsumerGroupDescribe": {"two groups": Variant(_set(group_ids=["group-a", OTHER_GROUP]))},
    "DeleteGroups": {"two groups": Variant(_set(groups_names=["group-a", OTHER_GROUP]))},
    "OffsetDelete": {"missing group": Variant(_set(group_id=OTHER_GROUP))},
    "DescribeTransactions": {"two ids": Variant(_set(transactional_ids=["txn-a", OTHER_ID]))},
    "FindCoordinator": {
        "two keys": Variant(_find_two, since=_KEYS),
        "share": Variant(_find_share, since=1),
    },
    "InitProducerId": {"without an id": Variant(_set(transactional_id=None))},
    "AddPartitionsToTxn": {"missing partition": Variant(_add_missing_partition, until=3)},
}
"""The variants of each API's requests, by the API's name."""
