"""Builds Arrow batches from rows, with only the requested columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rookery.consumer import gather
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.order.ready import OrderedRows
from rookery.consumer.order.table import Strings
from rookery.consumer.output.arrow import Numbers, Sizes, append_value, column
from rookery.consumer.output.streamdecoder import Reject, StreamDecoder
from rookery.consumer.settings import StreamSettings
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition
from rookery.records.reading import HEADERS

if TYPE_CHECKING:
    from rookery.decode.port import Array

TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")
LATENESS: Final = pa.duration("ms")
TOPIC: Final = pa.dictionary(pa.int32(), pa.string())
_BYTES: Final[dict[str, pa.DataType]] = {
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
}
_FIXED: Final[dict[str, pa.DataType]] = {
    "topic": TOPIC,
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestamp_type": pa.int8(),
    "headers": HEADERS,
    "leader_epoch": pa.int32(),
    "lateness": LATENESS,
    "raw_key": pa.binary(),
    "raw_value": pa.binary(),
}
REJECTED: Final = pa.schema(
    [
        ("topic", TOPIC),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
    ]
)
"""The schema of rows that cannot be decoded."""


class BatchShape:
    """The format of batches: the columns, and the partitions of the rows."""

    def __init__(self, settings: StreamSettings, topics: Sequence[str]) -> None:
        """Open the decoders for the given topics.

        Raises:
            ConfigError, Unavailable: as `StreamDecoder`.
        """
        self._settings = settings
        self._columns = settings.chosen
        self._bytes = _BYTES[settings.binary]
        self.topics = list(topics)
        self.key = StreamDecoder("key", settings.key, topics)
        self.value = StreamDecoder("value", settings.value, topics)
        self._names = pa.array(self.topics, pa.string())
        self._topic_of: Sizes = np.empty(0, np.int32)
        self._partition_of: Sizes = np.empty(0, np.int32)
        self.schema = pa.schema([(name, self._type(name)) for name in self._columns])

    def needs(self) -> set[str]:
        """Return the parts of records that must be decoded for the columns."""
        named = {"raw_key": "key", "raw_value": "value"}
        return {named.get(name, name) for name in self._columns}

    def join(self, place: TopicPartition) -> None:
        """Add a partition; its number is the next."""
        if place.topic not in self.topics:
            self._add_topic(place.topic)
        topic = self.topics.index(place.topic)
        self._topic_of = append_value(self._topic_of, topic)
        self._partition_of = append_value(self._partition_of, place.partition)

    def _add_topic(self, name: str) -> None:
        """Add a topic; its rows must fit the existing columns.

        Raises:
            ConfigError: they do not fit.
        """
        topics = [*self.topics, name]
        key = StreamDecoder("key", self._settings.key, topics)
        value = StreamDecoder("value", self._settings.value, topics)
        if not (key.type.equals(self.key.type) and value.type.equals(self.value.type)):
            raise ConfigError(
                f"topic {name!r} is new, and decodes to other columns: open the stream again"
            )
        self.topics, self.key, self.value = topics, key, value
        self._names = pa.array(topics, pa.string())

    def topic_number(self, index: int) -> int:
        """Return the number of a partition's topic."""
        return int(self._topic_of[index])

    def _type(self, name: str) -> pa.DataType:
        decoded = {"key": self.key.type, "value": self.value.type}
        type_ = decoded.get(name) or _FIXED[name]
        return self._bytes if type_ == pa.binary() else type_

    def build(self, rows: OrderedRows, late: Numbers | None) -> tuple[pa.RecordBatch, list[Reject]]:
        """Build a batch; also return the rows that could not be decoded."""
        rejects: list[Reject] = []
        raw: dict[str, Array] = {}
        arrays = []
        for name in self._columns:
            if name in {"key", "value", "raw_key", "raw_value"}:
                source = name.removeprefix("raw_")
                if source not in raw:
                    raw[source] = gather.binary(_strings(rows, source))
                taken = raw[source]
                if name == source:
                    decoding = self.key if name == "key" else self.value
                    decoded = decoding.decode(taken, self._topic_of[rows.indices])
                    taken, rejects = decoded.values, rejects + decoded.rejects
                arrays.append(taken.cast(self._bytes) if taken.type == pa.binary() else taken)
            else:
                arrays.append(self._plain(name, rows, late))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema), rejects

    def build_rejects(self, rows: OrderedRows, rejects: list[Reject]) -> pa.RecordBatch:
        """Build a batch of the rows that could not be decoded, with the reasons."""
        some = rows.at(np.array([reject.row for reject in rejects], np.int64))
        columns = [self._plain(name, some, None) for name in REJECTED.names[:4]]
        columns += [gather.binary(_strings(some, name)) for name in ("key", "value")]
        columns.append(pa.array([reject.reason for reject in rejects], pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=REJECTED)

    def _plain(self, name: str, rows: OrderedRows, late: Numbers | None) -> Array:
        if name == "topic":
            indices = column(self._topic_of[rows.indices], pa.int32())
            return pa.DictionaryArray.from_arrays(indices, self._names, safe=False)
        if name == "partition":
            return column(self._partition_of[rows.indices], pa.int32())
        if name == "offset":
            return column(rows.offsets, pa.int64())
        if name == "timestamp":
            return _times(rows.columns.times)
        if name == "lateness":
            return column(np.zeros(len(rows), np.int64) if late is None else late, LATENESS)
        return rows.arrays[name]


def _strings(rows: OrderedRows, name: str) -> Strings:
    return rows.columns.keys if name == "key" else rows.columns.values


def _times(times: Numbers) -> Array:
    is_missing = times == NO_TIME
    if not is_missing.any():
        return column(times, TIMESTAMP)
    return column(np.where(is_missing, 0, times), TIMESTAMP, is_missing)
