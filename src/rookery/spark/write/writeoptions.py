"""Options of a DataFrame that is written to topics.

    topic          the topic for all rows; by default the value of each row's column `topic`
    compression    none (default), gzip, snappy, lz4 or zstd; a topic's own setting wins
    createTopic    the number of partitions of missing topics, which are then created
    sinkId         the identity of the writer: a repeated batch with the same sinkId counts once
    batchId        for batch writes: the batch number, which must increase from run to run
    takeOver       true: this query takes over the sink of another query, for one run
    sourceOffsets  for batch writes: any text to store with the batch, for resuming
    batchBytes, objectBytes, uploads: sizes, see `rookery.direct.layout.PackSettings`

Without `sinkId`, a repeated batch write writes its rows again. A stream requires one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import check_batch
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.spark.checkpoint import check_reachable
from rookery.spark.rawoptions import NOT_WRITTEN, WRITE_NAMES, shorten

# Spark passes its own options to the sink of a stream.
_SPARKS: Final = ("checkpointLocation", "queryName")
_BY_LOWER: Final = {name.lower(): name for name in (*WRITE_NAMES, *_SPARKS)}
# The number of digits is limited so that values fit in 64 bits.
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write: the location, the format and the sink."""

    place: ClusterAddress
    packing: PackSettings
    create_partitions: int = 0
    sink_id: str = ""
    batch_id: int | None = None
    takes_over: bool = False
    source_offsets: str = ""
    checkpoint: str = ""
    """The location of Spark's checkpoint for the stream."""
    query_name: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
        """Parse options as Spark passes them.

        Raises:
            ConfigError: an option is unknown or invalid; the text names it.
        """
        given = _select_known(options)
        defaults = PackSettings()
        made = cls(
            place=ClusterAddress.of(given),
            packing=PackSettings(
                topic=given.get("topic", ""),
                compression=given.get("compression", defaults.compression).lower(),
                batch_bytes=_number(given, "batchBytes", defaults.batch_bytes),
                object_bytes=_number(given, "objectBytes", defaults.object_bytes),
                uploads=_number(given, "uploads", defaults.uploads),
            ),
            create_partitions=_number(given, "createTopic", 0),
            sink_id=given.get("sinkId", ""),
            batch_id=_number(given, "batchId", 0) if "batchId" in given else None,
            takes_over=_flag(given, "takeOver"),
            source_offsets=given.get("sourceOffsets", ""),
            checkpoint=given.get("checkpointLocation", ""),
            query_name=given.get("queryName", ""),
        )
        made.check(is_stream=is_stream)
        check_reachable(made.place)
        return made

    def check(self, *, is_stream: bool) -> None:
        """Refuse options that contradict each other.

        Raises:
            ConfigError: they do.
        """
        if is_stream and not self.sink_id:
            raise ConfigError(
                "a stream needs the option sinkId: under this name its batches are known, so that "
                "each counts once; choose one that no other query uses"
            )
        if is_stream and self.batch_id is not None:
            raise ConfigError("batchId: a stream's batches are numbered by Spark; leave it out")
        if self.batch_id is not None and not self.sink_id:
            raise ConfigError("batchId needs sinkId: numbers are counted under its name")
        if self.takes_over and not self.sink_id:
            raise ConfigError("takeOver needs sinkId, which names the sink to take over")
        check_batch(SinkBatch(self.sink_id, "", self.batch_id or 0))


def _select_known(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by their canonical names, without a reader's and without empty ones."""
    given = {}
    for name, value in options.items():
        proper = _BY_LOWER.get(name.lower())
        if proper is not None:
            if value.strip():
                given[proper] = value.strip()
        elif name.lower() not in NOT_WRITTEN:
            raise ConfigError(f"option {name!r} is not known{_advice(name)}")
    return given


def _advice(name: str) -> str:
    if name.lower().startswith("kafka."):
        return ": rows are written to the store, not to brokers; name it with `store` or `data`"
    near = difflib.get_close_matches(name.lower(), _BY_LOWER, 1)
    if near:
        return f"; do you mean {_BY_LOWER[near[0]]}?"
    return f"; there are {', '.join(WRITE_NAMES)}"


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name)
    if text is None:
        return default
    if _NUMBER.fullmatch(text) is None:
        raise ConfigError(f"{name}={shorten(text)}: must be a whole number")
    return int(text)


def _flag(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}={text!r}: write true or false")
    return text == "true"
