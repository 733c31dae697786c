"""What a topic demands of a producer's batches, beyond their being whole.

Most is told by a batch's header. Records, which are known to be whole unless they are compressed,
are looked at only where a setting asks for it: keys in a compacted topic, a bound on old times, a
codec of the topic's own, or that compressed ones are opened and checked, too; and where the header
cannot be right about the highest time. Some clients leave that at -1, and Kafka sets it then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.broker import configs
from rookery.broker.configkeys import MAX_LONG
from rookery.broker.configs import TopicConfigs
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ApiError, ErrorCode
from rookery.records import batch as batches
from rookery.records import record as records
from rookery.records.batch import BatchHeader
from rookery.records.compression import named
from rookery.records.record import BatchContents

PRODUCER: Final = "producer"
UNCOMPRESSED: Final = "uncompressed"
_ZSTD: Final = 4
# Attributes that ask for a second look: zstd has its own bit among the codecs.
_UNUSUAL: Final = batches.TRANSACTIONAL | _ZSTD
_ZSTD_SINCE: Final = 7
# What a batch may become when it is opened, or twice its topic's max.message.bytes if that is more.
_OPEN_BYTES: Final = 32 * 1024 * 1024
# More records than this are not named one by one.
_MAX_NAMED: Final = 100

Fault = tuple[int, str]
"""A record, counted from the batch's first, and what is wrong with it."""


class BadRecords(ApiError):  # noqa: N818 (as its base)
    """A batch is refused for the sake of some of its records."""

    def __init__(self, code: ErrorCode, text: str, faults: list[Fault]) -> None:
        super().__init__(code, text)
        self.faults = faults


class Rules(NamedTuple):
    """What a topic's settings mean for every batch, ready for use."""

    max_bytes: int
    after_max_ms: int
    is_plain: bool
    """Whether no setting asks for a look at the records."""
    only_opens: bool
    """Whether at most one does: that compressed records are checked, too."""
    configs: TopicConfigs

    def wants_look(self, header: BatchHeader) -> bool:
        """Whether `adapt` has to see this batch."""
        return (
            not self.only_opens
            or header.max_timestamp < header.base_timestamp
            or bool(header.attributes & batches.CODEC_MASK and not self.is_plain)
        )

    def admits(self, header: BatchHeader, latest_ms: int) -> bool:
        """Whether a batch is fine by what its header says; if not, `check` tells."""
        return not (
            header.attributes & _UNUSUAL
            or header.batch_length > self.max_bytes - batches.OVERHEAD
            or header.max_timestamp > latest_ms
        )

    def check(self, header: BatchHeader, version: int, latest_ms: int) -> None:
        """Refuse a batch by what its header says.

        Raises:
            ApiError: with the code that Kafka answers.
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
    """Work out the rules of a topic; `TopicCache` keeps them."""
    settings = configs.resolve(state, topic)
    # Where the broker sets the time, that of the producer does not matter.
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
    """Check the records of a batch, and give them the topic's codec; may take long.

    Raises:
        ApiError: with the code that Kafka answers.
    """
    header = batches.parse(data)
    contents = _check_records(data, header, settings, now_ms)
    if header.max_timestamp < header.base_timestamp and not settings.is_append_time:
        header = header._replace(max_timestamp=contents.max_timestamp)
        data = memoryview(bytearray(b"".join(batches.restamp(data, header))))
    name = "none" if settings.compression_type == UNCOMPRESSED else settings.compression_type
    if name in {PRODUCER, header.codec.name}:
        return data
    codec = named(name)
    body = codec.compress(
        records.payload(data, header, _limit(settings)), settings.compression_level
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
    contents = records.inspect(data, header, limit)
    if settings.is_compacted and contents.null_keys:
        faults = [
            (index, "a compacted topic needs a key in every record")
            for index, record in enumerate(records.read(data, header, limit))
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
