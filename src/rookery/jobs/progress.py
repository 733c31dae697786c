"""Where a job has got to, kept in the cluster log under the job's name, as a sink keeps its place.

Whoever begins the job again, on whatever host, goes on from there. What a slice writes and how far
the job has come are one event, so that no slice counts twice and none is left out. If a topic that
it wrote to was deleted since, what it wrote is gone, and the job is at its beginning again; if
that happens while it runs, it stops.
"""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rookery.cluster.state.sinkrules import MAX_SOURCE_OFFSETS
from rookery.cluster.state.sinks import SinkBatch
from rookery.direct.commit import Commit, commit, forget, last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Conflict
from rookery.model.uuid import uuid_text

_PREFIX: Final = "job:"
_TARGETS: Final = "targets"
_PACKED: Final = "zlib:"
# What is larger is packed: the offsets of thousands of partitions.
_PLAIN_BYTES: Final = 16 * 1024


class JobPosition(NamedTuple):
    """Where a job is."""

    batch_id: int
    """The next slice's number; not 0 if the job began anew."""
    position: dict[str, Any]
    """What the job itself has noted; empty at the beginning."""


class Ledger:
    """Keeps one job's place."""

    def __init__(self, log: DirectLog, name: str, kind: str, targets: Iterable[str] = ()) -> None:
        """Keep it in a cluster's log.

        Args:
            log: of the cluster that the job writes to.
            name: of this job; two jobs of one name would take each other for themselves.
            kind: what sort of job it is.
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
        """Return what a slice's objects are staged for."""
        return SinkBatch(self.sink_id, self._kind, batch_id)

    async def read(self) -> JobPosition:
        """Return where the job is.

        Raises:
            Conflict: the name belongs to a job of another kind.
            Unavailable: the cluster log is out of reach.
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
        if self._gone():
            self._written, position = {}, {}
        return JobPosition(sink.batch_id + 1, position)

    async def check_targets(self) -> None:
        """See whether the topics that slices were written to are still there.

        Raises:
            Conflict: one was deleted; if there is one of its name, it is another.
            Unavailable: the cluster log is out of reach.
        """
        await self._log.barrier()
        if gone := self._gone():
            raise Conflict(
                f"topic {gone[0]} was deleted while this job wrote to it, with all that the job "
                "had written: run the job again, and it begins anew"
            )

    def check_room(self, position: dict[str, Any]) -> None:
        """See whether a position can be noted, before there is work that it would be lost for.

        Raises:
            ConfigError: it is too large.
        """
        size = len(self._text(position))
        # Offsets get longer while a job is at work.
        if size > MAX_SOURCE_OFFSETS // 8 * 7:
            raise ConfigError(
                f"where this job is takes {size} bytes, which is more than the cluster log keeps "
                f"of a job ({MAX_SOURCE_OFFSETS}): take fewer topics, or topics with fewer "
                "partitions, at a time, each time in a job of its own"
            )

    async def commit(
        self, batch_id: int, position: dict[str, Any], object_ids: list[int] | None = None
    ) -> Commit:
        """Note a slice as done, with what it has written.

        Raises:
            Conflict: another run of the same job was faster, what was staged is gone, or a topic
                that earlier slices were written to.
            Unavailable: it is not known whether it was noted: begin the job again.
        """
        await self.check_targets()
        # What is staged is staged for topics by their ids: from here on, a new one gets nothing.
        self._written |= self._ids(self._targets)
        batch, text = self.batch(batch_id), self._text(position)
        return await commit(self._log, batch, object_ids or [], source_offsets=text)

    def _text(self, position: dict[str, Any]) -> str:
        return _write({**position, _TARGETS: self._written} if self._targets else position)

    def _ids(self, names: Iterable[str]) -> dict[str, str]:
        known = self._log.state.topics.by_name
        return {name: uuid_text(known[name].id) for name in names if name in known}

    def _gone(self) -> list[str]:
        """Return the topics that were written to, and are not there any more."""
        ids = self._ids(self._written)
        return [name for name, known in self._written.items() if ids.get(name) != known]

    async def forget(self) -> None:
        """Let the job's name begin anew."""
        await forget(self._log, self.sink_id)


def _write(position: dict[str, Any]) -> str:
    text = json.dumps(position, sort_keys=True, separators=(",", ":"))
    if len(text) <= _PLAIN_BYTES:
        return text
    return _PACKED + b85encode(zlib.compress(text.encode(), 9)).decode()


def _read(text: str) -> dict[str, Any]:
    if text.startswith(_PACKED):
        text = zlib.decompress(b85decode(text.removeprefix(_PACKED))).decode()
    found: dict[str, Any] = json.loads(text)
    return found
