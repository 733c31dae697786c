"""How long does a walk over a large Metadata answer take, for each kind of field?

100 topics with 100 partitions each, on 12 brokers, with three replicas. Figures are CPU
milliseconds, the median of several runs. "rewrite" calls a Python function for the values.

    python bench/walk.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table

from rookery.errors import ErrorCode
from rookery.wire.message import (
    BrokerId,
    GroupId,
    Host,
    LeaderEpoch,
    PartitionId,
    Port,
    TopicId,
    TopicName,
)
from rookery.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from rookery.wire.walk import rewrite, visit

TOPICS = PARTITIONS = 100
BROKERS = 12
RUNS = 31
GOAL_MS = 3.0

KINDS: dict[str, tuple[object, Callable[[Any], Any]]] = {
    "topic name": (TopicName, lambda name: name),
    "topic id": (TopicId, lambda topic_id: topic_id),
    "partition": (PartitionId, lambda partition: partition ^ 1),
    "broker id": (BrokerId, lambda node: (node + 1) % BROKERS),
    "leader epoch": (LeaderEpoch, lambda epoch: epoch),
    "host": (Host, lambda host: host),
    "port": (Port, lambda port: port),
    "group id (there is none)": (GroupId, lambda group: group),
}


def metadata_response() -> MetadataResponse:
    """Return an answer about 10 000 partitions, with a list of its own for every partition."""
    brokers = [
        MetadataResponseBroker(node_id=node, host=f"broker-{node}.example", port=9092)
        for node in range(BROKERS)
    ]
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=f"topic-{number}",
            topic_id=number.to_bytes(16, "big"),
            partitions=[partition(topic=number, index=index) for index in range(PARTITIONS)],
        )
        for number in range(TOPICS)
    ]
    return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=topics)


def partition(topic: int, index: int) -> MetadataResponsePartition:
    """Return one partition with three replicas."""
    nodes = [(topic + index + step) % BROKERS for step in range(3)]
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE,
        partition_index=index,
        leader_id=nodes[0],
        leader_epoch=index,
        replica_nodes=nodes,
        isr_nodes=list(nodes),
        offline_replicas=[],
    )


def milliseconds(action: Callable[[], object]) -> float:
    """Return the median CPU time of a call."""
    spent = []
    for _ in range(RUNS):
        started = time.process_time()
        action()
        spent.append(time.process_time() - started)
    return statistics.median(spent) * 1000


def main() -> None:
    """Print one row for each kind."""
    response = metadata_response()
    table = Table(title=f"walk: ms for {TOPICS * PARTITIONS:,} partitions (goal: {GOAL_MS:g})")
    for heading in ("kind", "values", "visit", "rewrite", "goal"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for name, (kind, change) in KINDS.items():
        seen = milliseconds(lambda kind=kind: visit(response, kind))
        done = milliseconds(lambda kind=kind, change=change: rewrite(response, kind, change))
        verdict = "met" if max(seen, done) <= GOAL_MS else "MISSED"
        count = len(list(visit(response, kind)))
        table.add_row(name, f"{count:,}", f"{seen:.2f}", f"{done:.2f}", verdict)
    Console(width=90).print(table)


if __name__ == "__main__":
    main()
