"""Fields that look like a name, a number or an address that a proxy must rewrite bear a mark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rookery.wire.catalog import apis
from rookery.wire.message import (
    BrokerId,
    ClusterId,
    GroupId,
    InstanceId,
    MemberId,
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TransactionalId,
    kind_of,
)
from rookery.wire.table import shape_of, structures

LOOKS_LIKE_A_NAME: Final = re.compile(
    r"""(^|_)(
        name|id|host|port|address|endpoint|topic|partition|group|member|user|principal|owner|
        leader|replica|isr|elr|broker|node|voter|controller|candidate|successor|rack|client|
        regex|pattern|match|key|entity|resource|offset|watermark|producer_epoch|leader_epoch|
        num_partitions|count
    )s?(_filters?)?_?$""",
    re.VERBOSE,
)

# Fields that bear no mark, and why. "Class.field", or "*.field" for every class.
UNMARKED: Final = {
    # Names of other things.
    "*.assignor_name": "a strategy of assignment",
    "*.protocol_name": "a strategy of assignment",
    "JoinGroupRequestProtocol.name": "a strategy of assignment",
    "ApiVersionsRequest.client_software_name": "a program",
    "SupportedFeatureKey.name": "a feature",
    "FinalizedFeatureKey.name": "a feature",
    "Feature.name": "a feature",
    "Listener.name": "a listener; each of its addresses bears a mark",
    "LeaderEndpoint.name": "a listener; each of its addresses bears a mark",
    "CreatableTopicConfig.name": "a setting",
    "CreatableTopicConfigs.name": "a setting",
    "AlterableConfig.name": "a setting",
    "DescribeConfigsResourceResult.name": "a setting",
    "DescribeConfigsSynonym.name": "a setting",
    "DescribeConfigsResource.configuration_keys": "settings",
    "OpData.key": "a limit",
    "ValueData.key": "a limit",
    "KeyValue.key": "a setting, or a tag that the application chose",
    "ApiVersion.api_key": "an API",
    # Ids that never leave the two that share them.
    "*.session_id": "a fetch session: each server of fetches keeps its own",
    "*.generation_id": "a count of rebalances",
    "*.subscription_id": "a hash of what clients are to measure",
    "*.client_instance_id": "drawn for one client's metrics; the same everywhere",
    "*.incarnation_id": "one life of a broker, between brokers and controllers",
    "*.replica_directory_id": "a log directory, between brokers and controllers",
    "*.voter_directory_id": "a log directory, between brokers and controllers",
    "*.candidate_directory_id": "a log directory, between brokers and controllers",
    "DirectoryData.id_": "a log directory, between brokers and controllers",
    "DirectoryResult.id_": "a log directory, between brokers and controllers",
    "EnvelopeRequest.request_principal": "serialised by the broker's own principal builder",
    "EnvelopeRequest.client_host_address": "raw bytes, between brokers and controllers",
    # Of Streams applications, and read by them alone.
    "*.process_id": "a process of the application",
    "*.subtopology_id": "a part of the application",
    "Endpoint.host": "an address of the application, not of a broker",
    "Endpoint.port": "an address of the application, not of a broker",
    "CopartitionGroup.source_topics": "positions in the lists of names",
    "CopartitionGroup.source_topic_regex": "positions in the lists of names",
    "CopartitionGroup.repartition_source_topics": "positions in the lists of names",
    "TaskOffset.offset": "a sum over several logs",
    # Numbers and flags.
    "*.delivery_count": "deliveries of a record",
    "*.delivery_complete_count": "records",
    "ListOffsetsPartition.max_num_offsets": "how many to answer",
    "DescribeClusterRequest.include_fenced_brokers": "a flag",
    "BrokerRegistrationRequest.is_migrating_zk_broker": "a flag",
    "DescribeLogDirsPartition.is_future_key": "a flag",
}

# What a field of this name is in every message, or else it is listed above.
BY_NAME: Final = {
    "topic": TopicName,
    "topic_name": TopicName,
    "subscribed_topic_names": TopicName,
    "topic_id": TopicId,
    "group_id": GroupId,
    "group_ids": GroupId,
    "member_id": MemberId,
    "group_instance_id": InstanceId,
    "transactional_id": TransactionalId,
    "transactional_ids": TransactionalId,
    "producer_id": ProducerId,
    "producer_epoch": ProducerEpoch,
    "cluster_id": ClusterId,
    "partition": PartitionId,
    "partition_index": PartitionId,
    "partition_indexes": PartitionId,
    "broker_id": BrokerId,
    "node_id": BrokerId,
    "voter_id": BrokerId,
    "controller_id": BrokerId,
    "leader_id": BrokerId,
    "replica_nodes": BrokerId,
    "isr_nodes": BrokerId,
    "offline_replicas": BrokerId,
    "start_offset": Offset,
    "first_offset": Offset,
    "last_offset": Offset,
}


def fields() -> Iterator[tuple[type[Message], str]]:
    """Yield every field of every API that holds values, not structures."""
    classes = {
        cls
        for api in apis().values()
        for message in (api.request, api.response)
        for cls in structures(message)
    }
    for cls in classes:
        for name, entry in cls.__fields__.items():
            if shape_of(cls, entry).message is None:
                yield cls, name


def unmarked() -> set[str]:
    return {
        f"{cls.__name__}.{name}"
        for cls, name in fields()
        if LOOKS_LIKE_A_NAME.search(name) and shape_of(cls, cls.__fields__[name]).mark is None
    }


def excuse_for(field: str) -> str | None:
    return next((key for key in (field, f"*.{field.partition('.')[2]}") if key in UNMARKED), None)


def test_field_that_looks_like_a_name_is_marked_or_excused() -> None:
    assert {field for field in unmarked() if excuse_for(field) is None} == set()


def test_every_excuse_is_needed() -> None:
    assert set(UNMARKED) - {excuse_for(field) for field in unmarked()} == set()


def test_fields_of_one_name_have_one_kind() -> None:
    for cls, name in fields():
        if name in BY_NAME:
            assert shape_of(cls, cls.__fields__[name]).kinds == {kind_of(BY_NAME[name])}, (
                cls,
                name,
            )
