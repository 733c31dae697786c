"""Filters that change or refuse the records of produce requests.

A partition whose records are refused is cut from the request. The others are forwarded, and the
response has both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.proxy.edits.topicchoice import TopicChoice
from rookery.proxy.filterapi import (
    FORWARD,
    Answer,
    Close,
    Filter,
    FilterContext,
    Forward,
    Verdict,
    if_noted,
    on_request,
    on_response,
)
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer
from rookery.wire.message import Message
from rookery.wire.messages.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from rookery.wire.partition import cut, join

THREAD_FROM_BYTES: Final = 1024 * 1024
"""Above this size, a change of records takes longer than to hand it to a thread."""


class RefusedRecords(ApiError):  # noqa: N818 (the name says what happened, as those in `errors`)
    """Some records of a batch are refused, and with them the batch."""

    def __init__(self, code: ErrorCode, reason: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, reason)
        self.records = tuple(records)
        """The index in the batch and the reason of each."""


class ProduceFilter(Filter):
    """The base class of filters that look at produced records."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        self.topics = TopicChoice(self.options)

    def edit_batch(
        self, context: FilterContext, topic: str, records: Buffer, header: BatchHeader
    ) -> bytes | None:
        """Return a changed batch; None if it passes as it came.

        Large batches are changed in a thread.

        Args:
            context: the context of the request.
            topic: the name; empty if the filter is for all topics and the client sends an id.
            records: hold the batch; its header and CRC are checked.
            header: the header of the batch.

        Raises:
            ApiError: the batch is refused.
        """
        raise NotImplementedError

    @on_request(PRODUCE)
    def edit_produce(
        self, context: FilterContext, request: ProduceRequest
    ) -> Verdict | Awaitable[Verdict]:
        """Change or refuse the records of each partition."""
        missing = self.topics.find_missing(topic.topic_id for topic in request.topic_data)
        is_large = _size(request) > THREAD_FROM_BYTES
        if missing or is_large:
            return self._edit_later(context, request, missing, is_large=is_large)
        return self._edit(context, request)

    async def _edit_later(
        self,
        context: FilterContext,
        request: ProduceRequest,
        missing: list[bytes],
        *,
        is_large: bool,
    ) -> Verdict:
        if missing:
            await self.topics.names.find(context, missing)
        if is_large:
            return await asyncio.to_thread(self._edit, context, request)
        return self._edit(context, request)

    def _edit(self, context: FilterContext, request: ProduceRequest) -> Verdict:
        refused: dict[int, ApiError] = {}
        is_changed = False
        for topic in request.topic_data:
            name = self.topics.name(topic.name, topic.topic_id)
            if name is not None and not self.topics.has(name):
                continue
            for partition in topic.partition_data:
                try:
                    is_changed |= self._edit_partition(context, name, partition)
                except ApiError as error:
                    refused[id(partition)] = error
        if refused:
            return self._refuse(context, request, refused)
        return Forward(request) if is_changed else FORWARD

    def _edit_partition(
        self, context: FilterContext, topic: str | None, partition: PartitionProduceData
    ) -> bool:
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        records: Any = partition.records
        if not records:
            # The broker refuses it.
            return False
        parts: list[Buffer] = []
        is_changed = False
        for header in batches.validate(records):
            try:
                changed = self.edit_batch(context, topic, records, header)
            except Corrupt as error:
                raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
            is_changed |= changed is not None
            whole = memoryview(records)[header.position : header.end]
            parts.append(whole if changed is None else changed)
        if is_changed:
            partition.records = parts[0] if len(parts) == 1 else b"".join(parts)
        return is_changed

    def _refuse(
        self, context: FilterContext, request: ProduceRequest, refused: dict[int, ApiError]
    ) -> Verdict:
        """Forward what is left, and keep the refusals for the response."""
        if PRODUCE.is_one_way(request):
            reason = next(iter(refused.values()))
            # As Kafka does it: there is no other way to tell the client.
            return Close(f"records without a response are refused: {reason}")

        def is_kept(_topic: TopicProduceData, partition: PartitionProduceData) -> bool:
            return id(partition) not in refused

        halves = cut(PRODUCE, context.version, request, is_kept)
        assert halves.denied is not None  # noqa: S101 (at least one partition is refused)
        codes = [
            refused[id(partition)]
            for topic in halves.denied.topic_data
            for partition in topic.partition_data
        ]
        refusal = PRODUCE.refuse_items(halves.denied, ErrorCode.INVALID_RECORD)
        _explain(refusal, codes)
        if halves.kept is None:
            return Answer(refusal)
        context.notes[self] = halves, refusal
        return Forward(halves.kept)

    @if_noted
    @on_response(PRODUCE)
    def join_refusal(self, context: FilterContext, response: Message) -> Verdict:
        """Complete the response to what was left of a request."""
        halves, refusal = context.notes[self]
        return Forward(join(halves, response, refusal))


def _size(request: ProduceRequest) -> int:
    return sum(
        len(partition.records or b"")
        for topic in request.topic_data
        for partition in topic.partition_data
    )


def _explain(refusal: ProduceResponse, errors: list[ApiError]) -> None:
    """Give each refused partition its own code and reasons."""
    rows = [row for topic in refusal.responses for row in topic.partition_responses]
    for row, error in zip(rows, errors, strict=True):
        row.error_code = error.code
        row.error_message = error.reason
        if isinstance(error, RefusedRecords):
            row.record_errors = [
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                for index, text in error.records
            ]
