"""Options of a DataFrame that reads topics: those of Spark's Kafka source, and Rookery's own.

Names are matched regardless of case. Unknown names are refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, Literal

from rookery.direct.offsets import EARLIEST, LATEST, DirectSubscription, PerPartition, Position
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.spark.checkpoint import check_gaps, check_reachable
from rookery.spark.rawoptions import (
    BATCH_ONLY,
    ENDS,
    NOT_READ,
    PACE,
    READ_NAMES,
    SUBSCRIBE,
    RawOptions,
    is_whole,
    json_object,
    numbers,
)
from rookery.spark.schema import ALL_COLUMNS, COLUMNS

_BY_LOWER: Final = {name.lower(): name for name in READ_NAMES}
_TRIGGER_DELAY_MS: Final = 15 * 60_000
_PIN_MS: Final = 3_600_000
# A batch is not read again later. A batch that runs every hour must not block compaction of its
# topics.
_BATCH_PIN_MS: Final = 900_000

OnDataLoss = Literal["fail", "skip", "report"]


@dataclass(frozen=True, slots=True)
class StreamPace:
    """Limits on the size of a stream's batches; None means no limit."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = _TRIGGER_DELAY_MS
    max_bytes: int | None = None

    @property
    def is_bounded(self) -> bool:
        """Return whether a batch can be smaller than all available records."""
        return any(
            limit is not None for limit in (self.max_offsets, self.min_offsets, self.max_bytes)
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of a read: the location, the topics, the range and the mode."""

    place: ClusterAddress
    subscription: DirectSubscription
    start: Position
    end: Position
    columns: tuple[str, ...] = COLUMNS
    is_committed: bool = True
    on_data_loss: OnDataLoss = "fail"
    gaps_to: str = ""
    min_partitions: int = 0
    max_records: int = 0
    pace: StreamPace = field(default_factory=StreamPace)
    is_ordered: bool = False
    is_latest_per_key: bool = False
    is_pushed: bool = False
    group_id: str = ""
    """The group under which a stream's offsets are published; empty: none."""
    pin_ms: int = _PIN_MS
    """How long the read range is pinned against compaction, since it may have to be read again.

    With 0 it is not pinned, and a stream does not detect that a repeated read returns fewer
    records.
    """
    resume_from: str = ""
    """The sink after whose last batch a new query starts; if empty, it starts at `start`."""

    @classmethod
    def columns_of(cls, options: Mapping[str, str]) -> tuple[str, ...]:
        """Return the columns that options select, for a batch or a stream.

        Raises:
            ConfigError: an option is unknown, or the columns are invalid.
        """
        return _columns(RawOptions(_select_known(options)))

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
        """Parse options as Spark passes them.

        Raises:
            ConfigError: an option is unknown or invalid; the text names it.
        """
        given = RawOptions(_select_known(options))
        _check_kind(given, is_stream=is_stream)
        on_data_loss = _on_data_loss(given)
        made = cls(
            place=ClusterAddress.of(given.values),
            subscription=_subscription(given),
            start=_start(given, is_stream=is_stream),
            end=_end(given),
            columns=_columns(given),
            is_committed=given.choice(
                "kafka.isolation.level", ("read_committed", "read_uncommitted")
            )
            == "read_committed",
            on_data_loss=on_data_loss,
            gaps_to=given.text("gapsTo"),
            min_partitions=given.number("minPartitions") or 0,
            max_records=given.number("maxRecordsPerPartition") or 0,
            pace=_pace(given),
            is_ordered=bool(given.text("orderBy"))
            and given.choice("orderBy", ("timestamp",)) == "timestamp",
            is_latest_per_key=given.flag("latestPerKey", default=False),
            is_pushed=given.flag("pushdown", default=False),
            group_id=_group_id(given),
            pin_ms=given.duration("pinFor", _PIN_MS if is_stream else _BATCH_PIN_MS),
            resume_from=given.text("resumeFrom"),
        )
        made.check()
        check_reachable(made.place)
        check_gaps(made.gaps_to)
        return made

    def with_columns(self, names: tuple[str, ...]) -> ReadOptions:
        """Return the same options with other columns."""
        return replace(self, columns=names)

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigError: they do.
        """
        if self.is_ordered and self.is_latest_per_key:
            raise ConfigError("orderBy and latestPerKey: choose one of them")
        if self.on_data_loss == "report" and not self.gaps_to:
            raise ConfigError(
                "onDataLoss=report: name a folder or a store with gapsTo, to which each gap is "
                "written as a file"
            )


def limits_in(options: Mapping[str, str]) -> list[str]:
    """Return the names of the options that limit a stream's batches."""
    return [name for name in _select_known(options) if name in PACE]


def _select_known(options: Mapping[str, str]) -> dict[str, str]:
    """Return options by their canonical names, without a writer's; refuse unknown ones."""
    known_options: dict[str, str] = {}
    for name, value in options.items():
        known = _BY_LOWER.get(name.lower())
        if known is not None:
            known_options[known] = value
        elif name.lower() not in NOT_READ:
            raise ConfigError(_unknown(name))
    return known_options


def _unknown(name: str) -> str:
    if name.lower() == "kafka.bootstrap.servers":
        return (
            "option kafka.bootstrap.servers: this source reads the objects, not the brokers; name "
            "the store instead (store=…, or data=… of brokers on this host, or cluster=NAME)"
        )
    if name.lower() == "path":
        return "load(…) takes no path here: name topics with subscribe, subscribePattern or assign"
    near = difflib.get_close_matches(name.lower(), _BY_LOWER, n=1, cutoff=0.5)
    hint = f"; did you mean {_BY_LOWER[near[0]]}?" if near else ""
    return f"option {name} is not known{hint}"


def _check_kind(given: RawOptions, *, is_stream: bool) -> None:
    """Refuse options that do not apply to streams, or to batches."""
    if not is_stream:
        if given.text("resumeFrom"):
            raise ConfigError("resumeFrom: for streams alone, not for batches; leave it out")
        return
    for name in (*ENDS, *BATCH_ONLY):
        if given.text(name) and given.text(name).lower() != "false":
            raise ConfigError(f"{name}: for batches alone, not for streams; leave it out")


def _subscription(given: RawOptions) -> DirectSubscription:
    named = [name for name in SUBSCRIBE if given.text(name)]
    if len(named) != 1:
        raise ConfigError(
            f"name what to read with exactly one of {', '.join(SUBSCRIBE)}"
            + (f", not with {', '.join(named)}" if named else "")
        )
    [name] = named
    value = given.text(name)
    if name == "subscribe":
        topics = tuple(topic.strip() for topic in value.split(",") if topic.strip())
        if not topics:
            raise ConfigError("subscribe: name topics, with commas between them")
        return DirectSubscription(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise ConfigError(f"subscribePattern={value!r}: {error}") from None
        return DirectSubscription(pattern=value)
    return DirectSubscription(assigned=_read_assigned(value))


def _read_assigned(value: str) -> dict[str, tuple[int, ...]]:
    topics = json_object("assign", value)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, listed in topics.items():
        if not isinstance(listed, list) or not all(
            is_whole(index) and index >= 0 for index in listed
        ):
            raise _not_assigned(value)
        assigned[topic] = tuple(listed)
    if not assigned:
        raise _not_assigned(value)
    return assigned


def _not_assigned(value: str) -> ConfigError:
    return ConfigError(f'assign={value!r}: write partitions as {{"topic": [0, 1]}}')


def _start(given: RawOptions, *, is_stream: bool) -> Position:
    default = "latest" if is_stream else "earliest"
    offset, offsets = _offsets(given, "startingOffsets", default)
    if not is_stream and (offset == LATEST or _has(offsets, LATEST)):
        raise ConfigError("startingOffsets: a batch cannot start at latest; it would be empty")
    strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    return Position(
        offset=offset,
        offsets=offsets,
        time_ms=given.time("startingTimestamp"),
        times=_times(given, "startingOffsetsByTimestamp"),
        if_none="latest" if strategy == "latest" else "error",
    )


def _end(given: RawOptions) -> Position:
    offset, offsets = _offsets(given, "endingOffsets", "latest")
    if (offsets is None and offset == EARLIEST) or _has(offsets, EARLIEST):
        raise ConfigError("endingOffsets: a batch cannot end at earliest; it would be empty")
    return Position(
        offset=offset,
        offsets=offsets,
        time_ms=given.time("endingTimestamp"),
        times=_times(given, "endingOffsetsByTimestamp"),
    )


def _offsets(given: RawOptions, name: str, default: str) -> tuple[int, PerPartition | None]:
    value = given.text(name) or default
    if value.lower() in {"earliest", "latest"}:
        return (EARLIEST if value.lower() == "earliest" else LATEST), None
    return EARLIEST, numbers(name, value, least=EARLIEST)


def _times(given: RawOptions, name: str) -> PerPartition | None:
    value = given.text(name)
    return numbers(name, value, least=0) if value else None


def _has(offsets: PerPartition | None, number: int) -> bool:
    return any(number in many.values() for many in (offsets or {}).values())


def _columns(given: RawOptions) -> tuple[str, ...]:
    chosen = given.text("columns")
    if not chosen:
        is_wide = given.flag("includeHeaders", default=False)
        return ALL_COLUMNS if is_wide else COLUMNS
    names = tuple(column.strip() for column in chosen.split(",") if column.strip())
    unknown = [name for name in names if name not in ALL_COLUMNS]
    if unknown or not names or len(set(names)) != len(names):
        raise ConfigError(
            f"columns={chosen!r}: choose one or more, each once, from {', '.join(ALL_COLUMNS)}"
        )
    return names


def _on_data_loss(given: RawOptions) -> OnDataLoss:
    chosen = given.text("onDataLoss")
    fails = given.flag("failOnDataLoss", default=True)
    if not chosen:
        return "fail" if fails else "skip"
    choice = given.choice("onDataLoss", ("fail", "skip", "report"))
    if given.text("failOnDataLoss") and fails != (choice == "fail"):
        raise ConfigError(f"failOnDataLoss={fails} and onDataLoss={choice} contradict each other")
    if choice == "fail":
        return "fail"
    return "skip" if choice == "skip" else "report"


def _group_id(given: RawOptions) -> str:
    """Return the group that is named, or a stable name with the given prefix."""
    named, prefix = given.text("kafka.group.id"), given.text("groupIdPrefix")
    if named or not prefix:
        return named
    what = "\n".join(given.text(name) for name in SUBSCRIBE)
    return f"{prefix}-{blake2b(what.encode(), digest_size=4).hexdigest()}"


def _pace(given: RawOptions) -> StreamPace:
    return StreamPace(
        max_offsets=given.number("maxOffsetsPerTrigger"),
        min_offsets=given.number("minOffsetsPerTrigger"),
        max_delay_ms=given.duration("maxTriggerDelay", _TRIGGER_DELAY_MS),
        max_bytes=given.number("maxBytesPerTrigger"),
    )
