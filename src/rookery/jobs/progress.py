"""Where a job has got to, kept in the cluster log under the job's name, as a sink keeps its place.

Whoever begins the job again, on whatever host, goes on from there. What a slice writes and how far
the job has come are one event, so that no slice counts twice and none is left out. If a topic that
it wrote to was deleted since, what it wrote is gone, and the job is at its beginning again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from rookery.cluster.state.sinks import Batch
from rookery.direct.commit import Commit, commit, forget, last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError, Conflict
from rookery.model.uuid import uuid_text

_PREFIX: Final = "job:"
_TARGETS: Final = "targets"


class Place(NamedTuple):
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
        self.sink_id = f"{_PREFIX}{name}"

    def batch(self, batch_id: int) -> Batch:
        """Return what a slice's objects are staged for."""
        return Batch(self.sink_id, self._kind, batch_id)

    async def read(self) -> Place:
        """Return where the job is.

        Raises:
            Conflict: the name belongs to a job of another kind.
            Unavailable: the cluster log is out of reach.
        """
        sink = await last_commit(self._log, self.sink_id)
        if sink is None:
            return Place(0, {})
        if sink.query_id != self._kind:
            raise Conflict(
                f"the name {self.sink_id.removeprefix(_PREFIX)!r} belongs to a job of another "
                f"kind ({sink.query_id}); choose another name"
            )
        position = json.loads(sink.source_offsets)
        written = position.pop(_TARGETS, {})
        ids = self._ids()
        is_gone = any(ids.get(name) != known for name, known in written.items())
        return Place(sink.batch_id + 1, {} if is_gone else position)

    async def commit(
        self, batch_id: int, position: dict[str, Any], object_ids: list[int] | None = None
    ) -> Commit:
        """Note a slice as done, with what it has written.

        Raises:
            Conflict: another run of the same job was faster, or what was staged is gone.
            Unavailable: it is not known whether it was noted: begin the job again.
        """
        noted = {**position, _TARGETS: self._ids()} if self._targets else position
        text = json.dumps(noted, sort_keys=True)
        return await commit(self._log, self.batch(batch_id), object_ids or [], source_offsets=text)

    def _ids(self) -> dict[str, str]:
        known = self._log.state.topics.by_name
        return {name: uuid_text(known[name].id) for name in self._targets if name in known}

    async def forget(self) -> None:
        """Let the job's name begin anew."""
        await forget(self._log, self.sink_id)
