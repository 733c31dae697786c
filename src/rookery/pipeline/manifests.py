"""How far a pipeline is: an origin, and one manifest a batch, each created once.

    STATE/origin.json                         the pipeline's query id, and where it began
    STATE/batches/00000000000000000007.json   batch 7: its files in every table, and its offsets
    STATE/finished/00000000000000000007.json  the last batch of a run that has ended in order
    STATE/backfill/, replays/, rebuild-8-…/   chains beside it, of the same form

If a batch's manifest exists, the batch is never computed again, only committed: what its rows
decode to may have changed meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa

from rookery.clock import SystemClock, SystemRandom
from rookery.errors import Conflict, Corrupt
from rookery.pipeline.metrics import Figures
from rookery.store.port import NotFound
from rookery.tables.folder import TableFolder
from rookery.tables.port import BatchName, DataFile

BACKFILL: Final = "backfill"
REPLAYS: Final = "replays"
CHAINS: Final = (BACKFILL, REPLAYS)
"""Chains beside the pipeline's own, in folders of its state."""
_ORIGIN: Final = "origin.json"
_BATCHES: Final = "batches/"
_FINISHED: Final = "finished/"
_FORMAT: Final = 1
_KEPT: Final = 1000
"""Manifests that stay, for those who look back."""

Offsets = Mapping[str, Mapping[str, int]]
"""By topic and partition (as JSON has it: text), the next offset to read."""


Ids = Mapping[str, str]
"""By topic: its id. A topic that is deleted and created again has another."""


class PipelinePosition(NamedTuple):
    """How far a pipeline has come."""

    ends: Offsets
    topics: Ids
    """Of the topics that those are offsets of."""


@dataclass(frozen=True, slots=True)
class PipelineOrigin:
    """When and where a pipeline began."""

    query: str
    at: int
    starts: Offsets
    topics: Ids = field(default_factory=dict)

    @property
    def reached(self) -> PipelinePosition:
        """Where the first batch begins."""
        return PipelinePosition(self.starts, self.topics)


@dataclass(frozen=True, slots=True)
class StagedFiles:
    """What a batch has for one table."""

    files: tuple[DataFile, ...]
    schema: str
    """In hex, Arrow's own form."""

    @classmethod
    def of(cls, files: tuple[DataFile, ...], schema: pa.Schema) -> StagedFiles:
        """Return files with these columns."""
        return cls(files, schema.serialize().to_pybytes().hex())

    def arrow_schema(self) -> pa.Schema:
        """Return the files' columns."""
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.schema)))


@dataclass(frozen=True, slots=True)
class BatchManifest:
    """A batch: where it ends, and the files that it consists of."""

    batch: int
    query: str
    at: int
    ends: Offsets
    """Of all partitions, also of those that had nothing in this batch."""
    sinks: Mapping[str, StagedFiles]
    """By the key of the table."""
    watermark_ms: int | None = None
    """As of the end of this batch: it holds for the next."""
    seen: Mapping[str, str] = field(default_factory=dict)
    """By bucket, the file with the keys that were seen within the watermark."""
    replaces: tuple[str, ...] = ()
    """Tables of which this batch's files become all."""
    topics: Ids = field(default_factory=dict)
    """Of the topics that it ends in."""
    rebuilt: Offsets = field(default_factory=dict)
    """Up to where the last rebuild has decoded dead letters again (`deadletters.Marks`)."""
    figures: Figures | None = None
    """For the process that commits it; None in manifests of earlier releases and of rebuilds."""

    @property
    def reached(self) -> PipelinePosition:
        """Where the next batch begins."""
        return PipelinePosition(self.ends, self.topics)


class Manifests:
    """The chain of a pipeline's manifests."""

    def __init__(self, state: str) -> None:
        self._folder = TableFolder(state)

    def origin(self) -> PipelineOrigin | None:
        """Return the origin, None if the pipeline never ran."""
        try:
            return PipelineOrigin(**_parsed(_ORIGIN, self._folder.read(_ORIGIN)))
        except NotFound:
            return None

    def begin(self, starts: Offsets, topics: Ids | None = None) -> PipelineOrigin:
        """Write the origin down; if someone else just did, theirs counts."""
        # No zero in front: some tables keep it as a number.
        query = "1" + SystemRandom().token(6).hex()
        origin = PipelineOrigin(query, SystemClock().now_ms(), starts, topics or {})
        try:
            self._folder.create(_ORIGIN, _written(asdict(origin)))
        except Conflict:
            found = self.origin()
            if found is not None:
                return found
        return origin

    def last(self) -> BatchManifest | None:
        """Return the newest manifest, None if there is none."""
        keys = [one.key for one in self._folder.list(_BATCHES)]
        return self._read(keys[-1]) if keys else None

    def all(self) -> Iterator[BatchManifest]:
        """Yield those that are there, from the oldest on."""
        for one in self._folder.list(_BATCHES):
            yield self._read(one.key)

    def read(self, batch: int) -> BatchManifest:
        """Return one manifest.

        Raises:
            NotFound: there is none of that number.
        """
        return self._read(_key(batch))

    def add(self, manifest: BatchManifest) -> None:
        """Write the next batch down.

        Raises:
            Conflict: another run of this pipeline has done so.
        """
        try:
            self._folder.create(_key(manifest.batch), _written(asdict(manifest)))
        except Conflict:
            raise Conflict(
                f"pipeline state {self._folder.name}: batch {manifest.batch} is there already, so"
                " another run of this pipeline is under way; stop one of them"
            ) from None

    def finish(self, batch: int) -> None:
        """Write down that a batch is in all of its tables."""
        with suppress(Conflict):
            self._folder.create(_key(batch, _FINISHED), _written({}))

    def is_finished(self, batch: int) -> bool:
        """Whether a batch is known to be in all of its tables; if not, it may be all the same."""
        return self._folder.size(_key(batch, _FINISHED)) is not None

    def prune(self) -> int:
        """Delete manifests that nobody needs any more; return how many."""
        old = [one.key for one in self._folder.list(_BATCHES)][:-_KEPT]
        ended = [one.key for one in self._folder.list(_FINISHED)][:-_KEPT]
        for key in (*old, *ended):
            self._folder.delete(key)
        return len(old)

    def _read(self, key: str) -> BatchManifest:
        value = _parsed(key, self._folder.read(key))
        value["sinks"] = {
            name: StagedFiles(tuple(DataFile(**file) for file in one["files"]), one["schema"])
            for name, one in value["sinks"].items()
        }
        value["replaces"] = tuple(value["replaces"])
        if value.get("figures") is not None:
            value["figures"] = Figures(**value["figures"])
        return BatchManifest(**value)


def identities(pipeline: str) -> tuple[str, str, str]:
    """Return what tables know a pipeline's batches by: its own, a backfill's, and replays."""
    return pipeline, f"{pipeline}/{BACKFILL}", f"{pipeline}/replay"


def batch_name(pipeline: str, manifest: BatchManifest) -> BatchName:
    """Return what tables know a batch by."""
    return BatchName(pipeline, manifest.query, manifest.batch)


def _key(batch: int, prefix: str = _BATCHES) -> str:
    return f"{prefix}{batch:020}.json"


def _written(value: dict[str, Any]) -> bytes:
    return json.dumps({"format": _FORMAT, **value}, separators=(",", ":")).encode()


def _parsed(key: str, data: bytes) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise Corrupt(f"{key}: no JSON: {error}") from error
    if value.pop("format", None) != _FORMAT:
        raise Corrupt(f"{key}: written by a version of Rookery that this one does not know")
    return value
