"""Reads all partitions as one stream of Arrow batches in time order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.consumer.api import Cluster, Topics
    from rookery.consumer.batchtransaction import transaction
    from rookery.consumer.checkpoint import PartitionMark
    from rookery.consumer.faults import (
        CorruptBatch,
        LateRow,
        LogTruncated,
        MissingTimestamp,
        Misuse,
        OffsetTruncated,
        OutOfMemory,
        PartitionFault,
        RecordTooLarge,
        TopicGone,
        Undecodable,
        UnheardPartitions,
    )
    from rookery.consumer.output.batch import Batch
    from rookery.consumer.output.progress import Progress
    from rookery.consumer.positions import Position, Positions
    from rookery.consumer.settings import Decoders, StreamOptions, StreamSettings

__all__ = [
    "Batch",
    "Cluster",
    "CorruptBatch",
    "Decoders",
    "LateRow",
    "LogTruncated",
    "MissingTimestamp",
    "Misuse",
    "OffsetTruncated",
    "OutOfMemory",
    "PartitionFault",
    "PartitionMark",
    "Position",
    "Positions",
    "Progress",
    "RecordTooLarge",
    "StreamOptions",
    "StreamSettings",
    "TopicGone",
    "Topics",
    "Undecodable",
    "UnheardPartitions",
    "transaction",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.consumer.api": ["Cluster", "Topics"],
            "rookery.consumer.batchtransaction": ["transaction"],
            "rookery.consumer.checkpoint": ["PartitionMark"],
            "rookery.consumer.faults": [
                "CorruptBatch",
                "LateRow",
                "LogTruncated",
                "MissingTimestamp",
                "Misuse",
                "OffsetTruncated",
                "OutOfMemory",
                "PartitionFault",
                "RecordTooLarge",
                "TopicGone",
                "Undecodable",
                "UnheardPartitions",
            ],
            "rookery.consumer.output.batch": ["Batch"],
            "rookery.consumer.output.progress": ["Progress"],
            "rookery.consumer.positions": ["Position", "Positions"],
            "rookery.consumer.settings": ["Decoders", "StreamOptions", "StreamSettings"],
        },
    )
