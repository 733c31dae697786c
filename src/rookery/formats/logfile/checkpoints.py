"""Kafka's checkpoint files: a version, a count, and a line for each entry.

leader-epoch-checkpoint            epoch, first offset
replication-offset-checkpoint      topic, partition, high watermark
recovery-point-offset-checkpoint   topic, partition, first offset that may not be on the disk
log-start-offset-checkpoint        topic, partition, first offset that was not deleted
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.model.partition import TopicPartition

VERSION: Final = "0"


class LoggedEpoch(NamedTuple):
    """An epoch of a partition's leader, and the first offset that was written in it."""

    epoch: int
    start_offset: int


def parse_offsets(text: str, name: str) -> dict[TopicPartition, int]:
    """Read a checkpoint of offsets by partition.

    Raises:
        Corrupt: it is damaged; the text begins with the name.
    """
    offsets = {}
    for topic, partition, offset in _rows(text, name, 3):
        offsets[TopicPartition(topic, _number(partition, name))] = _number(offset, name)
    return offsets


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Write a checkpoint of offsets by partition."""
    return _format(f"{key.topic} {key.partition} {value}" for key, value in offsets.items())


def parse_epochs(text: str, name: str) -> list[LoggedEpoch]:
    """Read a `leader-epoch-checkpoint`; epochs rise, and so do their offsets.

    Raises:
        Corrupt: it is damaged; the text begins with the name.
    """
    epochs: list[LoggedEpoch] = []
    for row in _rows(text, name, 2):
        entry = LoggedEpoch(*(_number(part, name) for part in row))
        # As in Kafka: of contradicting entries the later one is valid.
        while epochs and (epochs[-1].epoch >= entry.epoch or epochs[-1][1] >= entry.start_offset):
            epochs.pop()
        epochs.append(entry)
    return epochs


def format_epochs(epochs: Iterable[LoggedEpoch]) -> str:
    """Write a `leader-epoch-checkpoint`."""
    return _format(f"{entry.epoch} {entry.start_offset}" for entry in epochs)


def epoch_end(epochs: list[LoggedEpoch], epoch: int, log_end: int) -> LoggedEpoch | None:
    """Return the largest epoch up to `epoch` and its end offset, as OffsetForLeaderEpoch does.

    None if there is no such epoch.
    """
    at = bisect_right(epochs, epoch, key=lambda entry: entry.epoch)
    if not at:
        return None
    end = epochs[at].start_offset if at < len(epochs) else log_end
    return LoggedEpoch(epochs[at - 1].epoch, end)


def epoch_at(epochs: list[LoggedEpoch], offset: int) -> int:
    """Return the epoch in which an offset was written, -1 if it is not known."""
    at = bisect_right(epochs, offset, key=lambda entry: entry.start_offset)
    return epochs[at - 1].epoch if at else -1


def _rows(text: str, name: str, columns: int) -> list[list[str]]:
    if not text:
        return []  # Kafka creates the files before it has anything to write
    lines = text.split("\n")
    if lines[0] != VERSION:
        raise Corrupt(f"begins with {lines[0][:20]!r}, not with version {VERSION}", name=name)
    if len(lines) < 2:
        raise Corrupt("ends before its count", name=name)
    count = _number(lines[1], name)
    rows = [line.split(" ") for line in lines[2 : 2 + count]]
    if len(rows) != count or any(len(row) != columns for row in rows):
        reason = f"does not have the {count} lines of {columns} words that it claims"
        raise Corrupt(reason, name=name)
    if any(line for line in lines[2 + count :]):
        raise Corrupt(f"continues after the {count} lines that it declares", name=name)
    return rows


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise Corrupt(f"{text[:20]!r} is not a number", name=name)
    return int(text)


def _format(lines: Iterable[str]) -> str:
    rows = list(lines)
    return "\n".join([VERSION, str(len(rows)), *rows, ""])
