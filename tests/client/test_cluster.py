"""The client's view of the cluster, and how answers and hints change it."""

from __future__ import annotations

from rookery.client.connect.cluster import ClusterView
from rookery.errors import ErrorCode
from rookery.model.partition import TopicPartition
from rookery.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID = bytes(range(16))
PLACE = TopicPartition("birds", 0)


def answer(
    leader: int, epoch: int, *, topic_id: bytes = ID, code: ErrorCode = ErrorCode.NONE
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )
    topic = MetadataResponseTopic(
        error_code=code,
        name="birds",
        topic_id=topic_id,
        partitions=[] if code else [partition],
    )
    brokers = [MetadataResponseBroker(node_id=n, host="h", port=9000 + n) for n in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic], cluster_id="c", controller_id=1)


def leader_of(view: ClusterView) -> tuple[int, int]:
    partition = view.topics["birds"].partitions[0]
    return partition.leader, partition.leader_epoch


def test_metadata_answer_updates_the_view() -> None:
    view = ClusterView().with_answer(answer(1, 4))

    assert leader_of(view) == (1, 4)
    assert view.nodes[2].address.text == "h:9002"
    assert (view.cluster_id, view.controller_id) == ("c", 1)
    assert view.topics["birds"].partitions[0].isr == (1,)


def test_older_metadata_does_not_restore_an_old_leader() -> None:
    view = ClusterView().with_answer(answer(2, 5)).with_answer(answer(1, 4))

    assert leader_of(view) == (2, 5)


def test_recreated_topic_resets_leader_epochs() -> None:
    view = ClusterView().with_answer(answer(2, 5))
    view = view.with_answer(answer(1, 0, topic_id=bytes(15) + b"\1"))

    assert leader_of(view) == (1, 0)


def test_deleted_topic_is_removed_from_the_view() -> None:
    view = ClusterView().with_answer(answer(1, 1))
    view = view.with_answer(answer(1, 1, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    assert view.topics == {}


def test_topic_with_a_transient_error_keeps_its_leader() -> None:
    view = ClusterView().with_answer(answer(1, 1))
    view = view.with_answer(answer(1, 1, code=ErrorCode.LEADER_NOT_AVAILABLE))

    assert leader_of(view) == (1, 1)


def test_newer_leader_hint_is_used_and_an_older_one_ignored() -> None:
    view = ClusterView().with_answer(answer(1, 4))

    assert leader_of(view.with_leader(PLACE, 2, 5)) == (2, 5)
    assert view.with_leader(PLACE, 2, 4) is view
    assert view.with_leader(PLACE, 9, 5) is view
    assert view.with_leader(TopicPartition("birds", 7), 2, 5) is view
    assert view.with_leader(TopicPartition("fish", 0), 2, 5) is view


def test_partitions_without_a_leader_are_not_available() -> None:
    view = ClusterView().with_answer(answer(-1, 4))

    assert view.topics["birds"].available == []
