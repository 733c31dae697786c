"""Stores a job's progress in the cluster log under the job's name, as a sink does.

A job that is started again, on any host, continues from there. The records of a slice and the job's
progress are one event, so no slice counts twice and none is skipped. If a target topic was deleted,
its records are lost and the job starts from the beginning. If that happens during a run, the run
stops.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rookery.cluster.state.rules.sinkrules import MAX_SOURCE_OFFSETS
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import Commit, commit, forget, last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Conflict
from rookery.model.uuid import uuid_text

_PREFIX: Final = "job:"
_TARGETS: Final = "targets"
_PACKED: Final = "zlib:"
# Larger positions are compressed: they hold the offsets of thousands of partitions.
_PLAIN_BYTES: Final = 16 * 1024


class JobPosition(NamedTuple):
    """The progress of a job."""

    batch_id: int
    """The next slice's number; not 0 if the job was restarted."""
    position: dict[str, Any]
    """The job's own data; empty at the beginning."""


class Ledger:
    """Stores one job's progress."""

    def __init__(self, log: DirectLog, name: str, kind: str, targets: Iterable[str] = ()) -> None:
        """Use a cluster's log.

        Args:
            log: the log of the cluster that the job writes to.
            name: the job's name; two jobs with one name would share their progress.
            kind: the kind of the job.
            targets: the topics that it writes to.
        """
        if not name or len(name) > 200:
            raise ConfigError(f"job name {name[:40]!r}: must have 1 to 200 characters")
        self._log = log
        self._kind = kind
        self._targets = sorted(targets)
        self._written: dict[str, str] = {}
        self.sink_id = f"{_PREFIX}{name}"

    def batch(self, batch_id: int) -> SinkBatch:
        """Return the batch for which a slice's objects are staged."""
        return SinkBatch(self.sink_id, self._kind, batch_id)

    async def read(self) -> JobPosition:
        """Return the job's progress.

        Raises:
            Conflict: the name belongs to a job of another kind.
            Unavailable: the cluster log cannot be reached.
        """
        sink = await last_commit(self._log, self.sink_id)
        if sink is None:
            return JobPosition(0, {})
        if sink.query_id != self._kind:
            raise Conflict(
                f"the name {self.sink_id.removeprefix(_PREFIX)!r} belongs to a job of another "
                f"kind ({sink.query_id}); choose another name"
            )
        position = _read(sink.source_offsets)
        self._written = position.pop(_TARGETS, {})
        if self._find_gone():
            self._written, position = {}, {}
        return JobPosition(sink.batch_id + 1, position)

    async def check_targets(self) -> None:
        """Check that the topics that slices were written to still exist.

        Raises:
            Conflict: one was deleted; a topic with its name is a different one.
            Unavailable: the cluster log cannot be reached.
        """
        await self._log.barrier()
        if gone := self._find_gone():
            raise Conflict(
                f"topic {gone[0]} was deleted while this job wrote to it, with all that the job "
                "had written: run the job again, and it starts from the beginning"
            )

    def check_room(self, position: dict[str, Any]) -> None:
        """Check that a position fits into an entry before any work is done.

        Raises:
            ConfigError: it is too large.
        """
        size = len(self._text(position))
        # Offsets get longer while a job runs.
        if size > MAX_SOURCE_OFFSETS // 8 * 7:
            raise ConfigError(
                f"where this job is takes {size} bytes, which is more than the cluster log keeps "
                f"of a job ({MAX_SOURCE_OFFSETS}): take fewer topics, or topics with fewer "
                "partitions, at a time, each time in a job of its own"
            )

    async def commit(
        self, batch_id: int, position: dict[str, Any], object_ids: list[int] | None = None
    ) -> Commit:
        """Commit a slice, with the objects that it has written.

        Raises:
            Conflict: another run of the same job was faster, staged objects were discarded, or a
                target topic of earlier slices was deleted.
            Unavailable: it is unknown whether the slice was committed: start the job again.
        """
        await self.check_targets()
        # Objects are staged for topics by id: from here on, a recreated topic gets nothing.
        self._written |= self._ids(self._targets)
        batch, text = self.batch(batch_id), self._text(position)
        return await commit(self._log, batch, object_ids or [], source_offsets=text)

    def _text(self, position: dict[str, Any]) -> str:
        return _write({**position, _TARGETS: self._written} if self._targets else position)

    def _ids(self, names: Iterable[str]) -> dict[str, str]:
        known = self._log.state.topics.by_name
        return {name: uuid_text(known[name].id) for name in names if name in known}

    def _find_gone(self) -> list[str]:
        """Return the target topics that no longer exist."""
        ids = self._ids(self._written)
        return [name for name, known in self._written.items() if ids.get(name) != known]

    async def forget(self) -> None:
        """Delete the job's progress, so that its name can be used again."""
        await forget(self._log, self.sink_id)


def _write(position: dict[str, Any]) -> str:
    text = json.dumps(position, sort_keys=True, separators=(",", ":"))
    if len(text) <= _PLAIN_BYTES:
        return text
    return _PACKED + b85encode(zlib.compress(text.encode(), 9)).decode()


def _read(text: str) -> dict[str, Any]:
    if text.startswith(_PACKED):
        text = zlib.decompress(b85decode(text.removeprefix(_PACKED))).decode()
    position: dict[str, Any] = json.loads(text)
    return position
