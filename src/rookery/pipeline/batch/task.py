"""The task of an executor: decodes, splits and stages its share of a batch, and reports it.

Executors write the rows to the tables. The driver receives one short text per task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from rookery.clock import SystemRandom
from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.pipeline.batch.feeder import Feeder
from rookery.pipeline.batch.headers import empty_headers
from rookery.pipeline.batch.rowsplitter import RowSplitter, by_topic, with_number
from rookery.pipeline.batch.seenkeys import SeenInReplay, SeenKeys
from rookery.pipeline.declaration.columns import RAW
from rookery.pipeline.declaration.spec import Layer, Pipeline
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, DataFile
from rookery.tables.schemas import fit

REPORT: Final = "report string"
"""The schema of task reports, as Spark DDL."""
_QUANTILES: Final = 20


@dataclass(slots=True)
class TaskReport:
    """The result of one task."""

    files: dict[str, list[DataFile]] = field(default_factory=dict)
    """By sink number."""
    spans: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    """By topic and partition: the first offset, and the offset after the last."""
    rows: dict[str, int] = field(default_factory=dict)
    """By layer."""
    bytes: int = 0
    max_event_ms: int | None = None
    ages: list[int] = field(default_factory=list)
    """Timestamps of records in ms: quantiles, each for an equal share of the rows."""
    seen: dict[str, str] = field(default_factory=dict)

    def write(self) -> str:
        """Serialise the report."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> TaskReport:
        """Parse a serialised report."""
        value = json.loads(text)
        value["files"] = {
            sink: [DataFile(**file) for file in files] for sink, files in value["files"].items()
        }
        return cls(**value)


@dataclass(frozen=True, slots=True)
class StageTask:
    """The work of a batch, as it is serialised to executors."""

    pipeline: Pipeline
    name: BatchName
    decoders: Mapping[str, tuple[str, DecoderSettings]]
    silver: Mapping[str, pa.Schema]
    """By topic."""
    sinks: Mapping[int, pa.Schema]
    """By sink number, the columns of its files; other sinks receive nothing."""
    watermark_ms: int | None = None
    seen: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["batch", "replay"] = "batch"
    number: int = 0
    """The value for dead letters in the column named by `kind`."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task; yields the report, or nothing if there were no rows."""
        report = _Work(self).run(batches)
        if report is not None:
            yield pa.RecordBatch.from_pydict({"report": [report.write()]})


class _Work:
    def __init__(self, task: StageTask) -> None:
        self._task = task
        self._attempt = f"{_task_attempt()}-{SystemRandom().token(4).hex()}"
        self._feeders: dict[int, Feeder] = {}
        self._splitters: dict[str, RowSplitter] = {}
        self._report = TaskReport()
        if task.kind == "replay":
            self._seen: SeenKeys = SeenInReplay(task.pipeline)
        else:
            self._seen = SeenKeys(task.pipeline, task.seen, task.watermark_ms)
        self._times: list[pa.Array[Any]] = []

    def run(self, batches: Iterable[pa.RecordBatch]) -> TaskReport | None:
        try:
            return self._run(batches)
        except BaseException:
            for feeder in self._feeders.values():
                feeder.abort()
            raise

    def _run(self, batches: Iterable[pa.RecordBatch]) -> TaskReport | None:
        for batch in batches:
            raw = empty_headers(fit(batch, RAW))
            if raw.num_rows:
                self._measure(raw)
                self._feed("bronze", raw)
                for topic, rows in by_topic(raw):
                    self._take(topic, rows)
        if not self._times:
            return None
        for number, feeder in self._feeders.items():
            self._report.files[str(number)] = feeder.finish()
        self._report.seen = self._seen.write(self._attempt)
        self._report.ages = _quantiles(self._times)
        return self._report

    def _take(self, topic: str, raw: pa.RecordBatch) -> None:
        if not self._task.silver:
            return
        splitter = self._splitter(topic)
        split = splitter.split(raw, self._task.watermark_ms)
        latest = splitter.max_event_ms(split.good)
        if latest is not None:
            self._report.max_event_ms = max(self._report.max_event_ms or latest, latest)
        good = self._seen.first(split.good)
        self._count("duplicates", split.good.num_rows - good.num_rows)
        self._feed("silver", good, topic)
        self._feed("late", split.late, topic)
        dead = with_number(split.dead, self._task.kind, self._task.number)
        self._feed("dead-letters", dead, topic)

    def _feed(self, layer: Layer, rows: pa.RecordBatch, topic: str = "") -> None:
        self._count(layer, rows.num_rows)
        for number, sink in enumerate(self._task.pipeline.sinks):
            if sink.layer != layer or number not in self._task.sinks or not rows.num_rows:
                continue
            if layer == "bronze":
                for name, part in by_topic(rows):
                    if sink.takes(name):
                        self._feeder(number).put(part)
            elif sink.takes(topic):
                self._feeder(number).put(rows)

    def _feeder(self, number: int) -> Feeder:
        if number not in self._feeders:
            table = open_table(self._task.pipeline.sinks[number].table())
            schema, attempt = self._task.sinks[number], f"{number}-{self._attempt}"
            self._feeders[number] = Feeder(
                lambda rows: table.stage(self._task.name, rows, schema, attempt)
            )
        return self._feeders[number]

    def _splitter(self, topic: str) -> RowSplitter:
        if topic not in self._splitters:
            name, settings = self._task.decoders[topic]
            self._splitters[topic] = RowSplitter(
                self._task.pipeline, topic, open_decoder(name, settings), self._task.silver[topic]
            )
        return self._splitters[topic]

    def _count(self, layer: str, rows: int) -> None:
        self._report.rows[layer] = self._report.rows.get(layer, 0) + rows

    def _measure(self, raw: pa.RecordBatch) -> None:
        self._report.bytes += raw.nbytes
        self._times.append(raw.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False))
        spans = pa.table(raw.select(["topic", "partition", "offset"])).group_by(
            ["topic", "partition"]
        )
        for row in spans.aggregate([("offset", "min"), ("offset", "max")]).to_pylist():
            topic = self._report.spans.setdefault(row["topic"], {})
            begin, end = row["offset_min"], row["offset_max"] + 1
            old = topic.get(str(row["partition"]), [begin, end])
            topic[str(row["partition"])] = [min(old[0], begin), max(old[1], end)]


def _quantiles(times: list[pa.Array[Any]]) -> list[int]:
    """Return quantiles of the timestamps, each for an equal number of rows."""
    present = pa.chunked_array(times).cast(pa.int64()).drop_null()
    if not len(present):
        return []
    ordered: list[Any] = present.take(pc.sort_indices(present)).to_pylist()
    step = len(ordered) / _QUANTILES
    return [ordered[int((number + 0.5) * step)] for number in range(_QUANTILES)]


def _task_attempt() -> str:
    from pyspark import TaskContext  # noqa: PLC0415 (tests of a task need no Spark)

    context = TaskContext.get()
    return f"{context.stageId()}-{context.taskAttemptId()}" if context else "0-0"
