"""Where a batch for a virtual partition goes, and what the brokers answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from rookery.errors import ApiError, ErrorCode
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.topology import PartitionLeadership, UpstreamTopology
from rookery.proxy.nodes.writeorder import MOVED
from rookery.proxy.virtual.physicallog import PhysicalLog
from rookery.proxy.virtual.topicbook import TopicEntry, TopicKind
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)

_MARGIN_MS: Final = 5_000
_FIRST_WITH_BATCHES: Final = 3


class ProduceTarget(NamedTuple):
    """The place of a virtual partition."""

    log: PhysicalLog
    slot: int


def find_target(
    topics: VirtualTopics, entry: TopicEntry, index: int, version: int
) -> ProduceTarget:
    """Return where the batch of a virtual partition goes.

    Raises:
        ApiError: it is refused, with Kafka's code.
    """
    if entry.kind is TopicKind.MISSING:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if entry.kind is TopicKind.REFUSED:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, entry.reason)
    if version < _FIRST_WITH_BATCHES:
        raise ApiError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            "virtual partitions take batches of format 2, which Produce has from version 3",
        )
    remapper = entry.rule.remapper
    physical, slot = remapper.virtual_to_physical(index)
    log = topics.log(entry, physical)
    if log.trouble:
        raise ApiError(ErrorCode.POLICY_VIOLATION, log.trouble)
    if log.index.counter(slot) >= remapper.offset_range:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the partition has as many offsets as offset_range, {remapper.offset_range}",
        )
    return ProduceTarget(log, slot)


def produce_refusal(index: int, code: ErrorCode, reason: str = "") -> PartitionProduceResponse:
    """Return the refusal of a batch."""
    return PartitionProduceResponse(
        index=index, error_code=code, base_offset=-1, error_message=reason or None
    )


def find_limit(request: ProduceRequest) -> int:
    """Return how long brokers may take to answer a request, in milliseconds."""
    return max(request.timeout_ms, 0) + _MARGIN_MS


def limit_options(options: CallOptions, limit_ms: int) -> CallOptions:
    """Return the options for a request that must be answered within a time."""
    if options.timeout_ms is None or limit_ms < options.timeout_ms:
        return replace(options, timeout_ms=limit_ms)
    return options


def learn_results(
    topology: UpstreamTopology, response: ProduceResponse
) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return the results by physical partition; learn the new leaders that the broker names."""
    places = {each.node_id: Address(each.host, each.port) for each in response.node_endpoints}
    rows: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        for row in topic.partition_responses:
            rows[topic.name, row.index] = row
            if row.error_code not in MOVED:
                continue
            hint = row.current_leader
            if hint is None or hint.leader_id not in places:
                topology.doubt(topic.name)
                continue
            leadership = PartitionLeadership(hint.leader_id, hint.leader_epoch)
            topology.learn_leader(topic.name, row.index, leadership, places[hint.leader_id])
    return rows
