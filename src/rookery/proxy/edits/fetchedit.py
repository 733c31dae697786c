"""Changes of the records in fetch responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from rookery.errors import Error, ErrorCode
from rookery.proxy.edits.topicchoice import TopicChoice
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.wire.messages.fetch import FetchResponse
from rookery.wire.messages.share_fetch import ShareFetchResponse

_MAGIC_AT: Final = 16

FetchResponses = FetchResponse | ShareFetchResponse

BatchEdit = Callable[[Buffer, BatchHeader], bytes | None]
"""Returns a changed batch; None if it passes as it came. An `Error` refuses it."""


def count_bytes(response: FetchResponses) -> int:
    """Return how many bytes of records a response has."""
    return sum(
        len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    )


def list_ids(response: FetchResponses) -> list[bytes]:
    """Return the ids of topics with records."""
    return [
        topic.topic_id
        for topic in response.responses
        if any(partition.records for partition in topic.partitions)
    ]


def edit_fetched(
    response: FetchResponses, topics: TopicChoice, edit: BatchEdit
) -> tuple[bool, list[str]]:
    """Change the records of the chosen topics, in place; if `edit` raises, nothing changes.

    The batches before one that is refused are delivered. If it is the first one, the partition has
    an error instead of records.

    Returns:
        Whether there is a change, and a description of each error.
    """
    problems: list[str] = []
    changes: list[tuple[Any, bytes | None]] = []
    is_shared = isinstance(response, ShareFetchResponse)
    for topic in response.responses:
        name = topics.name(getattr(topic, "topic", ""), topic.topic_id)
        if name is not None and not topics.has(name):
            continue
        for partition in topic.partitions:
            records: Any = partition.records
            if not records:
                continue
            done = _edit_batches(records, name, edit)
            if done.problem:
                shown = name or topic.topic_id.hex()
                problems.append(f"{shown}-{partition.partition_index}: {done.problem}")
            if done.problem and (is_shared or not done.parts):
                changes.append((partition, None))
            elif done.is_changed or done.problem:
                changes.append((partition, b"".join(done.parts)))
    for partition, changed in changes:
        if changed is None:
            _refuse(partition)
        else:
            partition.records = changed
    return bool(changes), problems


class _Outcome:
    """The batches of one partition."""

    __slots__ = ("is_changed", "parts", "problem")

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.is_changed = False
        self.problem = ""


def _edit_batches(records: Buffer, topic: str | None, edit: BatchEdit) -> _Outcome:
    outcome = _Outcome()
    if topic is None:
        outcome.problem = "the name of the topic cannot be found"
        return outcome
    headers, fault = batches.sound(records)
    for header in headers:
        try:
            changed = edit(records, header)
        except Error as error:
            outcome.problem = f"offset {header.base_offset}: {error}"
            return outcome
        whole = memoryview(records)[header.position : header.end]
        outcome.parts.append(whole if changed is None else changed)
        outcome.is_changed |= changed is not None
    if fault is not None:
        rest = memoryview(records)[headers[-1].end if headers else 0 :]
        if len(rest) > _MAGIC_AT and rest[_MAGIC_AT] < batches.MAGIC:
            # Kafka's older formats, which no filter writes.
            outcome.parts.append(rest)
        else:
            outcome.problem = str(fault)
    return outcome


def _refuse(partition: Any) -> None:
    partition.error_code = ErrorCode.CORRUPT_MESSAGE
    partition.records = b""
    if hasattr(partition, "acquired_records"):
        partition.acquired_records = []
        partition.error_message = "the proxy cannot decrypt the records"
