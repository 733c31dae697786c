"""The settings of a stream: plain values, checked before any connection is opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict, cast

from rookery.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.decode.port import Decoder
    from rookery.model.partition import TopicPartition

MIB: Final = 1024 * 1024
ANY_ROWS: Final = 1 << 62
"""No limit on the number of rows."""

DecoderSpec: TypeAlias = "str | Decoder | Callable[[pa.Array[Any]], pa.Array[Any]]"
"""The name of a decoder that needs no settings, an open decoder, or a function."""
Decoders: TypeAlias = "DecoderSpec | Mapping[str, DecoderSpec]"
"""One decoder for all topics, or one per topic name."""
Rebalanced: TypeAlias = "Callable[[Sequence[TopicPartition]], object]"
"""Called with assigned or revoked partitions, in its own thread; it should return soon."""

COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
    "leader_epoch",
    "lateness",
    "raw_key",
    "raw_value",
)
"""The available columns; `raw_key` and `raw_value` are the bytes before decoding."""
DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Spill:
    """A folder for batches that do not fit into memory, and its maximum size."""

    folder: Path
    max_bytes: int


class StreamOptions(TypedDict, total=False):
    """The fields of `StreamSettings`, as keyword arguments."""

    order: Literal["timestamp", "partition", "none"]
    event_time: str
    lateness: timedelta
    late: Literal["flag", "drop", "side", "raise"]
    max_idle: timedelta
    max_transaction_wait: timedelta
    max_time: timedelta
    missing_timestamp: Literal["previous", "raise", "drop"]
    isolation: Literal["committed", "uncommitted"]
    on_truncation: Literal["raise", "earliest"]
    on_corrupt: Literal["raise", "skip"]
    on_decode_error: Literal["raise", "null", "side"]
    exact_start: bool
    columns: tuple[str, ...] | list[str] | None
    key: Decoders
    value: Decoders
    binary: str
    memory: int
    spill: Spill | None
    max_held_rows: int | None
    batch_rows: int
    batch_bytes: int
    batch_wait: timedelta
    max_batch_bytes: int
    max_rows: int | None
    max_bytes: int | None
    group: str | None
    group_protocol: Literal["auto", "consumer", "classic"]
    commit: Literal["manual", "on_next"]
    on_assigned: Rebalanced | None
    on_revoked: Rebalanced | None
    speed: float | None
    progress: bool
    discover: timedelta
    deadline: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How a stream orders, limits and formats its rows."""

    order: Literal["timestamp", "partition", "none"] = "timestamp"
    """By time over all partitions, one partition after the other, or in order of arrival."""
    event_time: str = "record"
    """The source of a row's time: `record`, `header:<name>`, or a path into the decoded value or
    key such as `value.created_at`."""
    lateness: timedelta = timedelta(0)
    """How much disorder within a partition is corrected, at the cost of holding rows back."""
    late: Literal["flag", "drop", "side", "raise"] = "flag"
    """How late rows are handled."""
    max_idle: timedelta = timedelta(milliseconds=500)
    """Live: how long to wait for an empty partition."""
    max_transaction_wait: timedelta = timedelta(seconds=60)
    """Live: how long to wait for an open transaction."""
    max_time: timedelta = timedelta(days=1)
    """How far a row's time may be after the stream's start before it is treated as an error."""
    missing_timestamp: Literal["previous", "raise", "drop"] = "previous"
    """How rows without a time are handled: by default they take the time of the row before."""
    isolation: Literal["committed", "uncommitted"] = "committed"
    """Whether rows of open and aborted transactions are left out."""
    on_truncation: Literal["raise", "earliest"] = "raise"
    """How to handle requested rows that retention has deleted."""
    on_corrupt: Literal["raise", "skip"] = "raise"
    """How to handle a batch with a wrong checksum."""
    on_decode_error: Literal["raise", "null", "side"] = "raise"
    """How to handle a key or value that cannot be decoded."""
    exact_start: bool = True
    """If the start is a time: leave out all older rows, whatever their offsets."""
    columns: tuple[str, ...] | None = None
    """The columns to build, in that order. None: key, value, topic, partition, offset, timestamp,
    and lateness if late rows are flagged."""
    key: Decoders = "raw"
    """The decoders of keys."""
    value: Decoders = "raw"
    """The decoders of values."""
    binary: Literal["binary", "large_binary", "binary_view"] = "binary"
    """The Arrow type of undecoded keys and values: views for polars and DuckDB, large binary for
    batches that are combined to more than 2 GiB."""
    memory: int = 256 * MIB
    """The maximum number of bytes held, excluding one batch and the batches already returned."""
    spill: Spill | None = None
    """Where to spill batches that do not fit into memory; None: raise an error instead."""
    max_held_rows: int | None = None
    """The maximum number of decoded rows held, unless one Kafka batch per partition is more. None:
    only `memory` limits them."""
    batch_rows: int = 65_536
    """The maximum number of rows of one batch."""
    batch_bytes: int = 16 * MIB
    """The approximate maximum size of one batch in bytes."""
    batch_wait: timedelta = timedelta(milliseconds=50)
    """How long released rows wait for more rows to fill a batch."""
    max_batch_bytes: int = 256 * MIB
    """The maximum decompressed size of one Kafka batch."""
    max_rows: int | None = None
    """The number of rows after which to stop."""
    max_bytes: int | None = None
    """The number of bytes of keys and values after which to stop."""
    group: str | None = None
    """The consumer group whose offsets are read and committed."""
    group_protocol: Literal["auto", "consumer", "classic"] = "auto"
    """Live: whether the coordinator assigns partitions (Kafka 4) or one member assigns for all.
    auto: the coordinator, if the brokers support it."""
    commit: Literal["manual", "on_next"] = "manual"
    """Whether requesting a batch commits the previous one."""
    on_assigned: Rebalanced | None = None
    """Live, in a group: called with assigned partitions before their first row is returned."""
    on_revoked: Rebalanced | None = None
    """Live, in a group: called with revoked partitions after their last row was returned. It can
    commit processed rows. Other members get the partitions after it returns."""
    speed: float | None = None
    """Replay speed relative to the original; None: as fast as possible."""
    progress: bool = False
    """Show a progress bar on stderr."""
    discover: timedelta = timedelta(seconds=30)
    """Live: how often to look for new partitions and topics."""
    deadline: timedelta = timedelta(seconds=60)
    """How long brokers may be unreachable before an error is raised."""

    def __post_init__(self) -> None:
        for field in fields(self):
            allowed = _CHOICES.get(field.name)
            if allowed is not None and getattr(self, field.name) not in allowed:
                raise ConfigError(
                    f"{field.name}={getattr(self, field.name)!r}: choose from {allowed}"
                )
        for name in ("memory", "batch_rows", "batch_bytes", "max_batch_bytes"):
            _check_positive(name, getattr(self, name))
        for name in ("max_rows", "max_bytes", "speed", "max_held_rows"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        self._check_times()
        self._check_columns()
        self._check_together()

    @property
    def chosen(self) -> tuple[str, ...]:
        """The columns of batches."""
        if self.columns is not None:
            return self.columns
        return (*DEFAULT_COLUMNS, "lateness") if self.late == "flag" else DEFAULT_COLUMNS

    @property
    def is_committed(self) -> bool:
        """Whether the isolation level is read-committed."""
        return self.isolation == "committed"

    def chunk_rows(self, partitions: int) -> int:
        """Return how many rows of each partition may be decoded at a time.

        At most one chunk of every partition, one batch that is ready, and the chunk that filled it
        are decoded at any time.
        """
        if self.max_held_rows is None:
            return ANY_ROWS
        return max((self.max_held_rows - self.batch_rows) // (partitions + 1), 1)

    def _check_times(self) -> None:
        names = ("lateness", "max_idle", "max_transaction_wait", "max_time", "batch_wait")
        for name in (*names, "discover", "deadline"):
            value = getattr(self, name)
            if not isinstance(value, timedelta) or value < timedelta(0):
                raise ConfigError(f"{name}={value!r}: must be a timedelta, 0 or more")

    def _check_columns(self) -> None:
        unknown = [name for name in self.chosen if name not in COLUMNS]
        if unknown or not self.chosen or len(set(self.chosen)) != len(self.chosen):
            raise ConfigError(
                f"columns={list(self.chosen)}: choose one or more, each once, from {COLUMNS}"
            )

    def _check_together(self) -> None:
        if self.order != "timestamp" and (self.lateness or self.speed is not None):
            raise ConfigError("lateness, speed: these need order='timestamp'")
        if self.max_held_rows is not None and self.max_held_rows <= self.batch_rows:
            raise ConfigError(
                f"max_held_rows={self.max_held_rows}: must be above batch_rows={self.batch_rows}"
            )
        if self.commit == "on_next" and self.group is None:
            raise ConfigError("commit='on_next': name the group to commit for")
        source = self.event_time.partition(":")[0].partition(".")[0]
        if source not in {"record", "header", "key", "value"}:
            raise ConfigError(
                f"event_time={self.event_time!r}: use record, header:<name>, or a path such as "
                "value.created_at"
            )


def settings_of(options: StreamOptions) -> StreamSettings:
    """Make settings from keyword arguments.

    Raises:
        ConfigError: one is unknown or cannot be used.
    """
    known = {field.name for field in fields(StreamSettings)}
    unknown = sorted(set(options) - known)
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: not known; choose from {', '.join(sorted(known))}"
        )
    values = cast("dict[str, Any]", dict(options))
    if values.get("columns") is not None:
        values["columns"] = tuple(values["columns"])
    return StreamSettings(**values)


def ms(value: timedelta) -> int:
    """Return a duration in whole milliseconds."""
    return value // timedelta(milliseconds=1)


_CHOICES: Final = {
    "order": ("timestamp", "partition", "none"),
    "late": ("flag", "drop", "side", "raise"),
    "missing_timestamp": ("previous", "raise", "drop"),
    "isolation": ("committed", "uncommitted"),
    "on_truncation": ("raise", "earliest"),
    "on_corrupt": ("raise", "skip"),
    "on_decode_error": ("raise", "null", "side"),
    "commit": ("manual", "on_next"),
    "group_protocol": ("auto", "consumer", "classic"),
    "binary": ("binary", "large_binary", "binary_view"),
}


def _check_positive(name: str, value: float) -> None:
    if value <= 0:
        raise ConfigError(f"{name}={value}: must be above 0")
