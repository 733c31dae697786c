"""What a user may choose about a stream; plain values, checked before anything is opened."""

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
"""As many rows as there are."""

DecoderSpec: TypeAlias = "str | Decoder | Callable[[pa.Array[Any]], pa.Array[Any]]"
"""The name of a decoder that needs no settings, one that is open, or a function of one's own."""
Decoders: TypeAlias = "DecoderSpec | Mapping[str, DecoderSpec]"
"""One for all topics, or one for each by its name."""
Rebalanced: TypeAlias = "Callable[[Sequence[TopicPartition]], object]"
"""Told of partitions that a group gives or takes, in a thread of its own; it should soon return."""

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
"""What can be asked for; `raw_key` and `raw_value` are the bytes that were decoded."""
DEFAULT_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Spill:
    """A folder for batches that do not fit into memory, and how much it may hold."""

    folder: Path
    max_bytes: int


class StreamOptions(TypedDict, total=False):
    """The settings of `StreamSettings`, as keyword arguments."""

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
    """How a stream orders, bounds and shapes what it reads."""

    order: Literal["timestamp", "partition", "none"] = "timestamp"
    """By time over all partitions; or one partition after the other; or as they come."""
    event_time: str = "record"
    """Where a row's time is: `record`, `header:<name>`, or a path into the decoded value or key
    such as `value.created_at`."""
    lateness: timedelta = timedelta(0)
    """How much disorder within a partition is put right, at the price of holding rows back."""
    late: Literal["flag", "drop", "side", "raise"] = "flag"
    """What becomes of rows that come after their time."""
    max_idle: timedelta = timedelta(milliseconds=500)
    """Live: how long an empty partition is waited for."""
    max_transaction_wait: timedelta = timedelta(seconds=60)
    """Live: how long an open transaction is waited for."""
    max_time: timedelta = timedelta(days=1)
    """How far a row's time may lie beyond the stream's start before it counts as a mistake."""
    missing_timestamp: Literal["previous", "raise", "drop"] = "previous"
    """What becomes of rows without a time: they take the place of the one before."""
    isolation: Literal["committed", "uncommitted"] = "committed"
    """Whether rows of open and aborted transactions are left out."""
    on_truncation: Literal["raise", "earliest"] = "raise"
    """What to do when retention has passed the reader."""
    on_corrupt: Literal["raise", "skip"] = "raise"
    """What to do with a batch whose checksum is wrong."""
    on_decode_error: Literal["raise", "null", "side"] = "raise"
    """What to do with a key or value that cannot be decoded."""
    exact_start: bool = True
    """Started by a time: leave out rows that are older, wherever they lie."""
    columns: tuple[str, ...] | None = None
    """The columns wanted, in that order; others are not built. None: key, value, topic, partition,
    offset, timestamp, and lateness if late rows are flagged."""
    key: Decoders = "raw"
    """How keys are decoded."""
    value: Decoders = "raw"
    """How values are decoded."""
    binary: Literal["binary", "large_binary", "binary_view"] = "binary"
    """Arrow's type of keys and values that are bytes: views for polars and DuckDB, large ones for
    batches that are put together to more than 2 GiB."""
    memory: int = 256 * MIB
    """The most bytes that are held, apart from one batch and from what was handed out."""
    spill: Spill | None = None
    """Where batches go that do not fit into memory; None: that is an error."""
    max_held_rows: int | None = None
    """The most rows that are decoded and held, unless one batch of Kafka's of each partition has
    more; None: `memory` bounds them alone."""
    batch_rows: int = 65_536
    """The most rows of one batch."""
    batch_bytes: int = 16 * MIB
    """About the most bytes of one batch."""
    batch_wait: timedelta = timedelta(milliseconds=50)
    """How long rows that may go wait for more to fill a batch."""
    max_batch_bytes: int = 256 * MIB
    """The most that one compressed batch of Kafka's may grow to."""
    max_rows: int | None = None
    """Where to stop, in rows."""
    max_bytes: int | None = None
    """Where to stop, in bytes of keys and values."""
    group: str | None = None
    """The consumer group whose offsets are read and committed."""
    group_protocol: Literal["auto", "consumer", "classic"] = "auto"
    """Live: whether the coordinator assigns partitions (Kafka 4), or one member for all; auto: the
    former, if the brokers know it."""
    commit: Literal["manual", "on_next"] = "manual"
    """Whether asking for a batch commits the one before."""
    on_assigned: Rebalanced | None = None
    """Live, in a group: told of partitions before the first row of theirs is handed out."""
    on_revoked: Rebalanced | None = None
    """Live, in a group: told of partitions after the last row of theirs was handed out; what was
    processed may be committed in it. Others get them when it returns."""
    speed: float | None = None
    """Hand rows out as fast as they were written, times this; None: as fast as possible."""
    progress: bool = False
    """Show a bar on stderr."""
    discover: timedelta = timedelta(seconds=30)
    """Live: how often new partitions and topics are looked for."""
    deadline: timedelta = timedelta(seconds=60)
    """How long brokers may be out of reach before that is an error."""

    def __post_init__(self) -> None:
        for one in fields(self):
            allowed = _CHOICES.get(one.name)
            if allowed is not None and getattr(self, one.name) not in allowed:
                raise ConfigError(f"{one.name}={getattr(self, one.name)!r}: choose from {allowed}")
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
        """The columns that batches have."""
        if self.columns is not None:
            return self.columns
        return (*DEFAULT_COLUMNS, "lateness") if self.late == "flag" else DEFAULT_COLUMNS

    @property
    def is_committed(self) -> bool:
        """Whether only rows of finished transactions are read."""
        return self.isolation == "committed"

    def chunk_rows(self, partitions: int) -> int:
        """Return how many rows of each partition may be decoded at once.

        One chunk of every partition, a batch that is ready, and the chunk that has filled it are
        all that is ever decoded.
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
    known = {one.name for one in fields(StreamSettings)}
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
    """Return whole milliseconds."""
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
