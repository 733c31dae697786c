"""The known state of the upstream, and the events that make it doubtful."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.proxy.nodes.topology import (
    NO_BROKER,
    CoordinatorCache,
    PartitionLeadership,
    UpstreamTopology,
)
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

BIRDS = b"birds".ljust(16, b".")


def metadata(
    leaders: dict[int, tuple[int, int]],
    *,
    topic_id: bytes = BIRDS,
    code: ErrorCode = ErrorCode.NONE,
    brokers: tuple[int, ...] = (1, 2, 3),
) -> MetadataResponse:
    return MetadataResponse(
        controller_id=2,
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"kafka-{node}", port=9092)
            for node in brokers
        ],
        topics=[
            MetadataResponseTopic(
                error_code=code,
                name="birds",
                topic_id=topic_id,
                partitions=[
                    MetadataResponsePartition(
                        error_code=ErrorCode.NONE,
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[leader],
                        isr_nodes=[leader],
                    )
                    for index, (leader, epoch) in leaders.items()
                ],
            )
        ],
    )


def learnt(response: MetadataResponse) -> UpstreamTopology:
    topology = UpstreamTopology()
    topology.learn(response)
    return topology


def test_leaders_are_found_by_name_and_id() -> None:
    topology = learnt(metadata({0: (1, 5), 1: (3, 5)}))

    assert topology.leader("birds", 1) == topology.leader(BIRDS, 1) == 3
    assert topology.leader("birds", 2) == topology.leader("fish", 0) == NO_BROKER
    assert topology.is_certain("birds", [0, 1])
    assert not topology.is_certain("birds", [0, 2])
    assert topology.controller_id == 2


def test_older_epoch_does_not_replace_a_newer_one() -> None:
    topology = learnt(metadata({0: (1, 5)}))

    topology.learn(metadata({0: (2, 4)}))
    assert topology.leader("birds", 0) == 1
    topology.learn(metadata({0: (2, 6)}))
    assert topology.leader("birds", 0) == 2
    topology.learn(metadata({0: (3, -1)}))
    assert topology.leader("birds", 0) == 3


def test_topic_with_another_id_starts_over() -> None:
    topology = learnt(metadata({0: (1, 9), 1: (1, 9)}))
    other = b"new birds".ljust(16, b".")

    topology.learn(metadata({0: (2, 0)}, topic_id=other))

    assert topology.leader("birds", 0) == topology.leader(other, 0) == 2
    assert topology.leader("birds", 1) == topology.leader(BIRDS, 0) == NO_BROKER


def test_answer_without_ids_keeps_the_known_one() -> None:
    topology = learnt(metadata({0: (1, 1)}))

    topology.learn(metadata({0: (2, -1)}, topic_id=ZERO_UUID))

    assert topology.leader(BIRDS, 0) == 2


def test_doubt_ends_with_the_next_answer() -> None:
    topology = learnt(metadata({0: (1, 1)}))

    topology.doubt(BIRDS)
    assert not topology.is_certain("birds", [0])
    assert topology.leader("birds", 0) == 1
    topology.learn(metadata({0: (1, 1)}))
    assert topology.is_certain("birds", [0])


def test_deleted_topic_is_forgotten() -> None:
    topology = learnt(metadata({0: (1, 1)}))

    topology.learn(metadata({}, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    assert topology.find("birds") is topology.find(BIRDS) is None


def test_leader_that_is_not_listed_is_not_used() -> None:
    topology = learnt(metadata({0: (3, 1)}, brokers=(1, 2)))

    assert topology.leader("birds", 0) == NO_BROKER
    assert not topology.is_certain("birds", [0])


def test_hint_replaces_the_leader() -> None:
    topology = learnt(metadata({0: (1, 1)}))

    topology.learn_leader("birds", 0, PartitionLeadership(4, 2), Address("kafka-4", 9092))
    assert topology.leader(BIRDS, 0) == 4
    topology.learn_leader("birds", 0, PartitionLeadership(2, 1), Address("kafka-2", 9092))
    assert topology.leader(BIRDS, 0) == 4


def test_last_used_coordinators_are_kept() -> None:
    cache = CoordinatorCache()
    for number in range(50_000):
        cache.learn(0, f"group-{number}", 1)
    assert cache.find(0, "group-0") == 1

    cache.learn(0, "one more", 2)

    assert cache.find(0, "group-0") == 1
    assert cache.find(0, "group-1") is None
    cache.forget(0, "one more")
    assert cache.find(0, "one more") is None
