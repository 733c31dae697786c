"""The declaration of a pipeline: the classes that `pipeline.toml` or a program fills in.

Invalid values are refused here, before anything is read or written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.model.location import Location, hide_options
from rookery.pipeline.declaration.choices import wrong_words
from rookery.pipeline.declaration.names import DELETED, OFFSET
from rookery.pipeline.declaration.sinkrules import has_files, sink_problems
from rookery.tables.port import TableSpec, Upsert

Layer = Literal["bronze", "silver", "dead-letters", "late"]
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SPAN: Final = re.compile(r"(\d+) ?(ms|s|seconds?|minutes?|hours?|days?)")
_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The topics to read, and their cluster."""

    topics: tuple[str, ...]
    store: str = ""
    cluster: str = ""
    namespace: str = "default"
    data: str = ""
    starting_offsets: Literal["earliest", "latest"] = "earliest"
    """The start of the pipeline; later runs continue from its last position."""
    max_offsets_per_trigger: int = 1_000_000
    """The largest batch, in records."""
    min_partitions: int = 0
    """The minimum number of tasks, if there is enough data; 0 leaves the choice to Spark."""
    on_data_loss: Literal["fail", "skip"] = "fail"
    group_id: str = ""
    """Publish progress as the offsets of this group, for tools that show lag."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", Location(self.store))
        object.__setattr__(self, "cluster", Location(self.cluster))

    def place(self) -> ClusterAddress:
        """Return the location of the log."""
        return ClusterAddress.of(self.place_options())

    def place_options(self) -> dict[str, str]:
        """Return the location as options of a source or sink."""
        names = ("store", "cluster", "namespace", "data")
        return {name: getattr(self, name) for name in names if getattr(self, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """The decoding of a topic."""

    value: str = "json"
    """The decoder's name: json, avro, protobuf, utf8, raw, python."""
    schema: str = ""
    schema_file: str = ""
    """The path of a file with the schema or a Protobuf descriptor set."""
    key: str = ""
    """A decoder for the key, which becomes the column `rookery_key`."""
    registry: str = ""
    """The URL of a schema registry."""
    registry_user: str = ""
    registry_password: str = field(default="", repr=False)
    subject: str = ""
    message: str = ""
    function: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "registry", Location(self.registry))


@dataclass(frozen=True, slots=True, kw_only=True)
class Silver:
    """The processing of decoded rows."""

    mode: Literal["append", "upsert"] = "append"
    keys: tuple[str, ...] = ()
    debezium: bool = False
    """Rows are change events: op, before, after."""
    event_time: str = ""
    """The column with the event time."""
    watermark: str = ""
    """The maximum delay of a row relative to the newest; later rows go to the layer `late`."""
    dedupe: bool = False
    """Keep only the first row of a key within the watermark."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """SQL expressions by name that must be true for every row."""
    upsert_task_bytes: int = 32 << 20
    """The approximate size of the changes that one upsert task processes, in bytes."""

    def watermark_ms(self) -> int | None:
        """Return the watermark in milliseconds."""
        return span_ms("silver.watermark", self.watermark) if self.watermark else None

    def upsert(self) -> Upsert | None:
        """Return the upsert settings, None if rows are appended."""
        if self.mode == "append":
            return None
        return Upsert(self.keys, (OFFSET,), DELETED, self.upsert_task_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """A table that receives the rows of a layer."""

    layer: Layer
    format: str
    location: str
    name: str = ""
    topics: tuple[str, ...] = ()
    """The topics whose rows it receives; all by default."""
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", Location(self.location))
        object.__setattr__(self, "options", hide_options(self.options))

    def table(self) -> TableSpec:
        """Return it as tables are described."""
        return TableSpec(self.format, self.location, self.name, self.options)

    def takes(self, topic: str) -> bool:
        """Return whether the table receives the rows of a topic."""
        return not self.topics or topic in self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Gold:
    """A table that is computed from silver by SQL."""

    name: str
    sql: str
    """Spark SQL over the view `silver`; with several silver tables, over their names."""
    format: str = "parquet"
    location: str
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", Location(self.location))
        object.__setattr__(self, "options", hide_options(self.options))

    def table(self) -> TableSpec:
        """Return it as tables are described."""
        return TableSpec(self.format, self.location, self.name, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """The maintenance of tables while a pipeline runs."""

    every_batches: int = 50
    """With 0, tables are maintained only by `rookery pipeline upkeep`."""
    target_bytes: int = 128 << 20
    small_bytes: int = 32 << 20
    keep: str = "7 days"
    """How long old versions of a table are readable."""
    keep_every: str = "10 minutes"
    """How long every version is kept; of older ones, the last of each minute or hour is kept."""

    def keep_ms(self) -> int:
        """Return how long old versions are readable, in milliseconds."""
        return span_ms("upkeep.keep", self.keep)

    def keep_every_ms(self) -> int:
        """Return how long every version is kept, in milliseconds."""
        return span_ms("upkeep.keep-every", self.keep_every)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A whole pipeline."""

    name: str
    state: str
    """The folder or store URL of the batch manifests."""
    source: Source
    sinks: tuple[Sink, ...]
    topics: Mapping[str, Decode] = field(default_factory=dict)
    """By topic; `*` applies to all other topics."""
    silver: Silver = field(default_factory=Silver)
    gold: tuple[Gold, ...] = ()
    upkeep: Upkeep = field(default_factory=Upkeep)

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", Location(self.state))
        for problem in self._problems():
            raise ConfigError(f"pipeline {self.name!r}: {problem}")

    def decode(self, topic: str) -> Decode:
        """Return the decoding of a topic."""
        return self.topics.get(topic) or self.topics.get("*") or Decode()

    def of(self, layer: Layer) -> list[Sink]:
        """Return the tables of a layer."""
        return [sink for sink in self.sinks if sink.layer == layer]

    def _problems(self) -> list[str]:
        return [*self._plain_problems(), *self._silver_problems(), *sink_problems(self)]

    def _plain_problems(self) -> list[str]:
        problems = list(wrong_words("source.", self.source))
        if _NAME.fullmatch(self.name) is None:
            problems.append("name: 1 to 64 letters, digits, - and _ only")
        if not self.source.topics:
            problems.append("source.topics: name one at least")
        if not 0 < self.source.max_offsets_per_trigger <= 1 << 31:
            problems.append("source.max-offsets-per-trigger: from 1 to 2147483648")
        problems += [
            f"topics.{topic}: source.topics does not have it"
            for topic in self.topics
            if topic != "*" and topic not in self.source.topics
        ]
        self.upkeep.keep_ms()
        self.upkeep.keep_every_ms()
        return problems

    def _silver_problems(self) -> list[str]:
        silver = self.silver
        problems = list(wrong_words("silver.", silver))
        if (silver.mode == "upsert" or silver.dedupe) and not silver.keys:
            problems.append("silver.keys: name the columns of the key, for upsert and dedupe")
        if silver.debezium and silver.mode != "upsert":
            problems.append('silver.debezium: change events need mode = "upsert"')
        if silver.mode == "upsert" and (silver.dedupe or silver.watermark):
            problems.append("silver.watermark: rows that replace others are never late; leave out")
        if bool(silver.watermark) != bool(silver.event_time):
            problems.append("silver.event-time and silver.watermark go together")
        if silver.dedupe and not silver.watermark:
            problems.append("silver.dedupe: say event-time and watermark, within which keys count")
        if silver.upsert_task_bytes < 1:
            problems.append("silver.upsert-task-bytes: 1 or more")
        silver.watermark_ms()
        return problems


def readable(sinks: list[Sink]) -> list[Sink]:
    """Return the tables that executors can read again, because they consist of files."""
    return [sink for sink in sinks if has_files(sink)]


def span_ms(name: str, text: str) -> int:
    """Parse a duration such as `10 minutes`.

    Raises:
        ConfigError: the text is not a duration.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(
            f"{name}: {text!r} is not a span of time such as `10 minutes` or `7 days`"
        )
    unit = match[2] if match[2] in _UNITS_MS else match[2].rstrip("s")
    return int(match[1]) * _UNITS_MS[unit]
