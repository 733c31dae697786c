"""The position of a pipeline: an origin and one manifest per batch, each created once.

    STATE/origin.json                         the pipeline's query id, and where it began
    STATE/batches/00000000000000000007.json   batch 7: its files in every table, and its offsets
    STATE/finished/00000000000000000007.json  the last batch of a run that has ended in order
    STATE/backfill/, replays/, rebuild-8-…/   chains next to it, of the same form

If a batch's manifest exists, the batch is only committed and never computed again, because its rows
might decode differently now.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rookery.clock import SystemClock, SystemRandom
from rookery.errors import Conflict
from rookery.pipeline.metrics import Figures
from rookery.store.port import NotFound
from rookery.tables.folder import TableFolder
from rookery.tables.manifest import parse_record
from rookery.tables.port import BatchName, DataFile

BACKFILL: Final = "backfill"
REPLAYS: Final = "replays"
CHAINS: Final = (BACKFILL, REPLAYS)
"""Additional chains, in folders of the pipeline's state."""
_ORIGIN: Final = "origin.json"
_BATCHES: Final = "batches/"
_FINISHED: Final = "finished/"
_FORMAT: Final = 1
_KEPT: Final = 1000
"""The number of manifests that are kept for inspection."""

Offsets = Mapping[str, Mapping[str, int]]
"""The next offset to read, by topic and partition (text, as in JSON)."""


Ids = Mapping[str, str]
"""The id of each topic. A topic that is deleted and created again has a new id."""


class PipelinePosition(NamedTuple):
    """The position of a pipeline."""

    ends: Offsets
    topics: Ids
    """The ids of the topics to which the offsets belong."""


@dataclass(frozen=True, slots=True)
class PipelineOrigin:
    """The time and position at which a pipeline started."""

    query: str
    at: int
    starts: Offsets
    topics: Ids = field(default_factory=dict)

    @property
    def reached(self) -> PipelinePosition:
        """The start of the first batch."""
        return PipelinePosition(self.starts, self.topics)


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """The files of a batch for one table."""

    files: tuple[DataFile, ...]
    schema: str
    """Arrow's serialised form, in hex."""

    @classmethod
    def of(cls, files: tuple[DataFile, ...], schema: pa.Schema) -> StagedFiles:
        """Return an instance for files with these columns."""
        return cls(files, schema.serialize().to_pybytes().hex())

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the files."""
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.schema)))


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """A batch: its end, and its files."""

    batch: int
    query: str
    at: int
    ends: Offsets
    """Covers all partitions, including those without records in this batch."""
    sinks: Mapping[str, StagedFiles]
    """By table key."""
    watermark_ms: int | None = None
    """The watermark at the end of this batch; the next batch uses it."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """By bucket, the file with the keys seen within the watermark."""
    replaces: tuple[str, ...] = ()
    """Tables whose whole contents this batch replaces."""
    topics: Ids = field(default_factory=dict)
    """The ids of the topics in `ends`."""
    rebuilt: Offsets = field(default_factory=dict)
    """The marks up to which the last rebuild decoded dead letters again (`DeadLetterMarks`)."""
    figures: Figures | None = None
    """For the process that commits it; None in manifests of earlier releases and of rebuilds."""

    @property
    def reached(self) -> PipelinePosition:
        """The start of the next batch."""
        return PipelinePosition(self.ends, self.topics)


class Manifests:
    """The chain of a pipeline's manifests."""

    def __init__(self, state: str) -> None:
        self._folder = TableFolder(state)

    def origin(self) -> PipelineOrigin | None:
        """Return the origin, None if the pipeline never ran."""
        try:
            return PipelineOrigin(**parse_record(_ORIGIN, self._folder.read(_ORIGIN), _FORMAT))
        except NotFound:
            return None

    def begin(self, starts: Offsets, topics: Ids | None = None) -> PipelineOrigin:
        """Write the origin; if a concurrent run has written one, return that."""
        # No leading zero: some tables store it as a number.
        query = "1" + SystemRandom().token(6).hex()
        origin = PipelineOrigin(query, SystemClock().now_ms(), starts, topics or {})
        try:
            self._folder.create(_ORIGIN, _write_json(asdict(origin)))
        except Conflict:
            stored = self.origin()
            if stored is not None:
                return stored
        return origin

    def last(self) -> BatchManifest | None:
        """Return the newest manifest, None if there is none."""
        keys = [file.key for file in self._folder.list(_BATCHES)]
        return self._read(keys[-1]) if keys else None

    def all(self) -> Iterator[BatchManifest]:
        """Yield the stored manifests, oldest first."""
        for file in self._folder.list(_BATCHES):
            yield self._read(file.key)

    def read(self, batch: int) -> BatchManifest:
        """Return one manifest.

        Raises:
            NotFound: there is no manifest with that number.
        """
        return self._read(_key(batch))

    def add(self, manifest: BatchManifest) -> None:
        """Write the manifest of the next batch.

        Raises:
            Conflict: another run of this pipeline has written it.
        """
        try:
            self._folder.create(_key(manifest.batch), _write_json(asdict(manifest)))
        except Conflict:
            raise Conflict(
                f"pipeline state {self._folder.name}: batch {manifest.batch} already exists, so"
                " another run of this pipeline is under way; stop one of them"
            ) from None

    def finish(self, batch: int) -> None:
        """Record that a batch is committed to all of its tables."""
        with suppress(Conflict):
            self._folder.create(_key(batch, _FINISHED), _write_json({}))

    def is_finished(self, batch: int) -> bool:
        """Return whether a batch is recorded as finished; it can be complete without a record."""
        return self._folder.size(_key(batch, _FINISHED)) is not None

    def prune(self) -> int:
        """Delete old manifests beyond the number kept; return the number deleted."""
        old = [file.key for file in self._folder.list(_BATCHES)][:-_KEPT]
        ended = [file.key for file in self._folder.list(_FINISHED)][:-_KEPT]
        for key in (*old, *ended):
            self._folder.delete(key)
        return len(old)

    def _read(self, key: str) -> BatchManifest:
        value = parse_record(key, self._folder.read(key), _FORMAT)
        value["sinks"] = {
            name: StagedFiles(tuple(DataFile(**file) for file in sink["files"]), sink["schema"])
            for name, sink in value["sinks"].items()
        }
        value["replaces"] = tuple(value["replaces"])
        if value.get("figures") is not None:
            value["figures"] = Figures(**value["figures"])
        return BatchManifest(**value)


def identities(pipeline: str) -> tuple[str, str, str]:
    """Return the identities of a pipeline's batches in tables: its own, backfill and replays."""
    return pipeline, f"{pipeline}/{BACKFILL}", f"{pipeline}/replay"


def batch_name(pipeline: str, manifest: BatchManifest) -> BatchName:
    """Return the name of a batch in tables."""
    return BatchName(pipeline, manifest.query, manifest.batch)


def _key(batch: int, prefix: str = _BATCHES) -> str:
    return f"{prefix}{batch:020}.json"


def _write_json(value: dict[str, Any]) -> bytes:
    return json.dumps({"format": _FORMAT, **value}, separators=(",", ":")).encode()
