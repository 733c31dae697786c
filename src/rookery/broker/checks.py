"""Checks a producer's batches against the topic's settings, after they are known to be intact.

Most checks need only the batch header. Records are known to be intact unless they are compressed.
They are inspected only where a setting requires it: keys in a compacted topic, a limit on old
timestamps, the topic's own codec, or validation of compressed batches. They are also inspected if
the maximum timestamp in the header cannot be right. Some clients leave it at -1, and Kafka then
sets it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.broker.config import configs
from rookery.broker.config.configkeys import MAX_LONG
from rookery.broker.config.configs import TopicConfigs
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.records import batches, recordcodec
from rookery.records.batches import BatchHeader
from rookery.records.compression import find_codec
from rookery.records.recordcodec import BatchContents

PRODUCER: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"
_ZSTD: Final = 4
# Attributes that need further checks; zstd has its own bit among the codecs.
_UNUSUAL: Final = batches.TRANSACTIONAL | _ZSTD
_ZSTD_SINCE: Final = 7
# The maximum size of a decompressed batch; twice the topic's max.message.bytes if that is more.
_OPEN_BYTES: Final = 32 * 1024 * 1024
# The maximum number of records reported individually.
_MAX_NAMED: Final = 100

Fault = tuple[int, str]
"""The index of a record in its batch, and the reason why it is invalid."""


class BadRecords(ApiError):  # noqa: N818 (as its base)
    """A batch is refused because some of its records are invalid."""

    def __init__(self, code: ErrorCode, text: str, faults: list[Fault]) -> None:
        super().__init__(code, text)
        self.faults = faults


class Rules(NamedTuple):
    """A topic's settings, prepared for the checks of each batch."""

    max_bytes: int
    after_max_ms: int
    is_plain: bool
    """Whether no setting requires an inspection of the records."""
    only_opens: bool
    """Whether no setting but the validation of compressed batches requires an inspection."""
    configs: TopicConfigs

    def wants_look(self, header: BatchHeader) -> bool:
        """Return whether `adapt` must process this batch."""
        return (
            not self.only_opens
            or header.max_timestamp < header.base_timestamp
            or bool(header.attributes & batches.CODEC_MASK and not self.is_plain)
        )

    def admits(self, header: BatchHeader, latest_ms: int) -> bool:
        """Return whether the header passes; if not, `check` raises the reason."""
        return not (
            header.attributes & _UNUSUAL
            or header.batch_length > self.max_bytes - batches.OVERHEAD
            or header.max_timestamp > latest_ms
        )

    def check(self, header: BatchHeader, version: int, latest_ms: int) -> None:
        """Refuse a batch based on its header.

        Raises:
            ApiError: with the error code that Kafka returns.
        """
        if header.attributes & batches.CODEC_MASK == _ZSTD and version < _ZSTD_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"zstd needs Produce 7 or later, not {version}",
            )
        if header.size > self.max_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a batch of {header.size} bytes; max.message.bytes is {self.max_bytes}",
            )
        if header.max_timestamp > latest_ms:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"a record's time {header.max_timestamp} is after {latest_ms}, the latest that "
                "message.timestamp.after.max.ms allows",
            )


def rules_of(state: State, topic: Topic) -> Rules:
    """Compute the rules of a topic; `TopicCache` caches them."""
    settings = configs.resolve(state, topic)
    # If the broker sets the timestamp, the producer's timestamp does not matter.
    is_append_time = settings.is_append_time
    only_opens = (
        settings.compression_type == PRODUCER
        and not settings.is_compacted
        and (settings.timestamp_before_max_ms == MAX_LONG or is_append_time)
    )
    return Rules(
        settings.max_message_bytes,
        MAX_LONG if is_append_time else settings.timestamp_after_max_ms,
        only_opens and not settings.validates_compressed,
        only_opens,
        settings,
    )


def adapt(data: memoryview, settings: TopicConfigs, now_ms: int) -> memoryview:
    """Check the records of a batch, and apply the topic's codec; can be slow.

    Raises:
        ApiError: with the error code that Kafka returns.
    """
    header = batches.parse(data)
    contents = _check_records(data, header, settings, now_ms)
    if header.max_timestamp < header.base_timestamp and not settings.is_append_time:
        header = header._replace(max_timestamp=contents.max_timestamp)
        data = memoryview(bytearray(b"".join(batches.restamp(data, header))))
    name = "none" if settings.compression_type == UNCOMPRESSED else settings.compression_type
    if name in {PRODUCER, header.codec.name}:
        return data
    codec = find_codec(name)
    body = codec.compress(
        recordcodec.payload(data, header, _limit(settings)), settings.compression_level
    )
    attributes = header.attributes & ~batches.CODEC_MASK | codec.id
    packed = bytearray(batches.seal(header._replace(attributes=attributes), body))
    packed += body
    if len(packed) > settings.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {len(packed)} bytes with the topic's codec; max.message.bytes is "
            f"{settings.max_message_bytes}",
        )
    return memoryview(packed)


def _limit(settings: TopicConfigs) -> int:
    return max(_OPEN_BYTES, 2 * settings.max_message_bytes)


def _check_records(
    data: memoryview, header: BatchHeader, settings: TopicConfigs, now_ms: int
) -> BatchContents:
    limit = _limit(settings)
    contents = recordcodec.inspect(data, header, limit)
    if settings.is_compacted and contents.null_keys:
        faults = [
            (index, "a compacted topic needs a key in every record")
            for index, record in enumerate(recordcodec.read(data, header, limit))
            if record.key is None
        ]
        raise BadRecords(
            ErrorCode.INVALID_RECORD,
            f"{contents.null_keys} records have no key, which a compacted topic needs",
            faults[:_MAX_NAMED],
        )
    if not settings.is_append_time:
        contents.check_times(
            now_ms, settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
        )
    return contents
