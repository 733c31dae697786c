"""Metrics of batches: JSON lines on disk, and a Prometheus file with last values and totals."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

_MAX_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a batch that are known before it is committed."""

    rows: Mapping[str, int]
    """By layer; `duplicates` are those that were left out."""
    bytes_in: int
    times_ms: Sequence[int]
    """Timestamps of records: quantiles, each for an equal share of the rows."""


@dataclass(slots=True)
class BatchMetrics:
    """The metrics of one batch."""

    pipeline: str
    batch: int
    at_ms: int
    """The time at which it was committed to all tables."""
    rows: dict[str, int] = field(default_factory=dict)
    """By layer; `duplicates` are those that were left out."""
    bytes_in: int = 0
    files: dict[str, list[int]] = field(default_factory=dict)
    """By table, the size in bytes of every new file."""
    phases_ms: dict[str, int] = field(default_factory=dict)
    """In order: stage, manifest, and the commit of each table."""
    freshness_p50_ms: int | None = None
    """The age of records when they became readable in the tables."""
    freshness_p99_ms: int | None = None
    lag: dict[str, int] = field(default_factory=dict)
    """By topic-partition, the number of unread records."""
    watermark_ms: int | None = None
    alerts: list[str] = field(default_factory=list)
    """Problems that need attention: schemas that the tables cannot store."""
    is_recovered: bool = False
    """Whether an interrupted run started the batch and the next run finished it."""


OnBatch = Callable[[BatchMetrics], None]
"""Receives the metrics of a batch when it is committed."""


class MetricsFile:
    """A file of JSON lines, with a second file in Prometheus' format."""

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES) -> None:
        """Append to a file; above `max_bytes` it replaces the previous old file."""
        self._path = path
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        self._totals: dict[str, int] = {}
        self._last = -1
        for metric in read_metrics(path):
            self._add(metric)

    def write(self, metrics: BatchMetrics) -> None:
        """Add a batch, unless the interrupted run has already added it."""
        if metrics.is_recovered and metrics.batch == self._last:
            return
        if self._path.exists() and self._path.stat().st_size > self._max_bytes:
            self._path.replace(_older(self._path))
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(metrics)) + "\n")
        self._add(metrics)
        unfinished = self._path.with_suffix(".prom.new")
        unfinished.write_text(self._prometheus(metrics))
        unfinished.replace(self._path.with_suffix(".prom"))

    def _add(self, metrics: BatchMetrics) -> None:
        self._last = metrics.batch
        sums = {f'rows_total{{layer="{name}"}}': rows for name, rows in metrics.rows.items()}
        sums["bytes_total"] = metrics.bytes_in
        sums["batches_total"] = 1
        for name, value in sums.items():
            self._totals[name] = self._totals.get(name, 0) + value

    def _prometheus(self, metrics: BatchMetrics) -> str:
        values: dict[str, float] = dict(self._totals)
        values["last_batch"] = metrics.batch
        values["last_commit_seconds"] = metrics.at_ms / 1000
        values["alerts"] = len(metrics.alerts)
        for quantile in ("p50", "p99"):
            value = getattr(metrics, f"freshness_{quantile}_ms")
            if value is not None:
                values[f'freshness_seconds{{quantile="{quantile}"}}'] = value / 1000
        for phase, took in metrics.phases_ms.items():
            values[f'phase_seconds{{phase="{_escape(phase)}"}}'] = took / 1000
        for partition, lag in metrics.lag.items():
            values[f'lag{{partition="{_escape(partition)}"}}'] = lag
        if metrics.watermark_ms is not None:
            values["watermark_seconds"] = metrics.watermark_ms / 1000
        for table, sizes in metrics.files.items():
            label = f'{{table="{_escape(table)}"}}'
            values[f"new_files{label}"] = len(sizes)
            values[f"new_file_bytes{label}"] = sum(sizes)
            values[f"largest_new_file_bytes{label}"] = max(sizes, default=0)
        return "".join(_lines(metrics.pipeline, values))


def read_metrics(path: Path) -> Iterator[BatchMetrics]:
    """Yield the metrics in a file of JSON lines; lines truncated by a crash are skipped."""
    for file in (_older(path), path):
        for line in file.read_text().splitlines() if file.exists() else ():
            try:
                value: dict[str, Any] = json.loads(line)
            except ValueError:
                continue
            yield BatchMetrics(**value)


def _older(path: Path) -> Path:
    return path.with_suffix(".old.jsonl")


def quantile(ages: Sequence[tuple[int, float]], at: float) -> int | None:
    """Return a weighted quantile."""
    total, reached = sum(weight for _, weight in ages), 0.0
    for value, weight in sorted(ages):
        reached += weight
        if reached >= at * total:
            return value
    return None


def _lines(pipeline: str, values: Mapping[str, float]) -> Iterator[str]:
    named: set[str] = set()
    for name, value in sorted(values.items()):
        plain, brace, labels = name.partition("{")
        metric = f"rookery_pipeline_{plain}"
        if metric not in named:
            named.add(metric)
            kind = "counter" if plain.endswith("_total") else "gauge"
            yield f"# TYPE {metric} {kind}\n"
        rest = f",{labels}" if brace else "}"
        yield f'{metric}{{pipeline="{pipeline}"{rest} {value}\n'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
