"""Log directories made by hand: small, with the peculiarities of other writers."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from rookery.formats.kraft.entries import METADATA_FOLDER, METADATA_TOPIC_ID, pack_batch
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.wire.kraft.cluster import FeatureLevelRecord
from rookery.wire.kraft.topics import PartitionRecord, TopicRecord
from rookery.wire.message import Message

CLUSTER = "IAAAAAAAQACAAAAAAAAAAg"
NODE = 1
FIRST_LOG = "00000000000000000000.log"
_NOW = 1_726_045_957_397
_METADATA_VERSION = 20


def topic_id(number: int) -> bytes:
    """Return the id of the topic with this number."""
    return bytes.fromhex(f"0000000000004000800000000000{number:04x}")


def make_directory(
    folder: Path,
    topics: Mapping[str, Sequence[Sequence[bytes]]] | None = None,
    *,
    replicas: Sequence[int] = (NODE,),
    elsewhere: Sequence[int] = (),
) -> Path:
    """Make a directory as one finds it after a stop in order.

    Args:
        folder: where; it is made.
        topics: values of messages by topic and partition; no metadata if not given.
        replicas: the nodes that hold each partition.
        elsewhere: partitions that are on another node's disk all the same.
    """
    folder.mkdir(parents=True)
    text = f"#\n#Wed Sep 11 00:00:00 UTC 2024\nnode.id={NODE}\nversion=1\ncluster.id={CLUSTER}\n"
    (folder / "meta.properties").write_text(text)
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":10}')
    if topics is None:
        return folder
    records: list[tuple[Message, int]] = [
        (FeatureLevelRecord(name="metadata.version", feature_level=_METADATA_VERSION), 0)
    ]
    for number, (name, partitions) in enumerate(topics.items(), 1):
        records.append((TopicRecord(name=name, topic_id=topic_id(number)), 0))
        for index, values in enumerate(partitions):
            nodes = [2] if index in elsewhere else list(replicas)
            records.append((_partition_record(number, index, nodes), 1))
            if index not in elsewhere:
                _partition(folder / f"{name}-{index}", topic_id(number), values)
    metadata = folder / METADATA_FOLDER
    _identify(metadata, METADATA_TOPIC_ID)
    (metadata / FIRST_LOG).write_bytes(pack_batch(records, 1, 1, _NOW))
    return folder


def message_batch(value: bytes, offset: int = 0) -> bytes:
    """Return a batch of one message, of an unknown producer."""
    settings = BatchSettings(
        base_offset=offset,
        partition_leader_epoch=0,
        producer_id=0,
        producer_epoch=0,
        base_sequence=0,
    )
    return build([Record(None, value, (), _NOW)], settings)


def _partition_record(number: int, index: int, nodes: list[int]) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id(number),
        replicas=nodes,
        isr=nodes,
        removing_replicas=[],
        adding_replicas=[],
        leader=nodes[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[bytes.fromhex("10000000000040008000000000000001")] * len(nodes),
    )


def _partition(folder: Path, identity: bytes, values: Sequence[bytes]) -> None:
    _identify(folder, identity)
    data = b"".join(message_batch(value, offset) for offset, value in enumerate(values))
    (folder / FIRST_LOG).write_bytes(data)


def _identify(folder: Path, identity: bytes) -> None:
    folder.mkdir()
    # Padded, and in the other alphabet: not as Kafka writes it, and read all the same.
    text = base64.b64encode(identity).decode()
    (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {text}")
