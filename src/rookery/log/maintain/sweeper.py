"""Deletes objects without live data: they are condemned, then deleted, then dropped.

    no row points into it ──(delay)──► ObjectsCondemned ──(delay, and a snapshot)──► delete
                                                                   ──► ObjectsDropped

The first delay lets slow fetches finish. The second delay and the snapshot ensure that a cluster
log rebuilt from the newest snapshot finds every object that the snapshot's rows reference.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from rookery.clock import Clock
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.events.logevents import ObjectsCondemned, ObjectsDropped
from rookery.cluster.events.sinkevents import SinkAborted
from rookery.cluster.replica import Replica
from rookery.errors import Unavailable
from rookery.formats.keys import is_stored, split_object_id
from rookery.log.maintain.quarantine import Quarantine

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
_DELETES: Final = 32


class Bin(Protocol):
    """Finds and deletes objects: journal files, objects in a store, or both."""

    async def find(self) -> list[int]:
        """Return the ids of all journals and shared objects that exist."""

    async def delete(self, object_id: int) -> None:
        """Delete an object and the files that belong to it; a missing object is not an error."""


class SweepResult(NamedTuple):
    """The result of a sweep."""

    condemned: int
    deleted: int


class Sweeper:
    """Sweeps objects, with delays measured by the clock of its process."""

    def __init__(
        self, replica: Replica, objects: Bin, clock: Clock, delay_ms: int, orphans_ms: int
    ) -> None:
        """Prepare to sweep.

        Args:
            replica: knows which objects are live.
            objects: finds and deletes objects.
            clock: measures the delays.
            delay_ms: how long an object must be empty before it is condemned, and condemned before
                it is deleted.
            orphans_ms: the interval of searches for objects that no row ever referenced.
        """
        self._replica = replica
        self._objects = objects
        self._clock = clock
        self._delay_ms = delay_ms
        self._orphans_ms = orphans_ms
        self._orphans: list[int] = []
        self._listed_at: int | None = None
        self.quarantine = Quarantine(clock)
        self._empty_since: dict[int, int] = {}
        self._condemned_since: dict[int, int] = {}

    async def sweep(self, snapshot: int) -> SweepResult:
        """Condemn and delete eligible objects; `snapshot` is the entry of the newest snapshot."""
        deleted = await self.delete(snapshot)
        return SweepResult(await self.condemn(), deleted)

    async def condemn(self) -> int:
        """Condemn objects without live data; return their number."""
        state = self._replica.state
        with self.quarantine.guard(("sinks",), "expiry of staged objects", (IncarnationFenced,)):
            await self._give_up_overdue()
        with self.quarantine.guard(
            ("orphans",), "search for orphaned objects", (IncarnationFenced,)
        ):
            await self._look_for_orphans()
        written = self._journals_written()
        empty = {
            object_id
            for object_id in (*state.objects.empty(state.brokers.sequences), *self._orphans)
            if not state.objects.rows.get(object_id)
            and object_id not in state.objects.condemned
            and self._is_closed(object_id, written)
        }
        self._empty_since, ripe = self._ripe(empty, self._empty_since)
        count = 0
        for some in _pieces(ripe, _AT_ONCE):
            [outcome] = await self._replica.propose([ObjectsCondemned(object_ids=some)])
            count += len(outcome.value)
        return count

    async def _give_up_overdue(self) -> None:
        """Abort staged objects of sinks that were never committed; that also condemns them."""
        overdue = self._replica.state.sinks.find_overdue(self._clock.now_ms())
        for some in _pieces(overdue, _AT_ONCE):
            await self._replica.propose([SinkAborted(object_ids=some)])

    async def _look_for_orphans(self) -> None:
        """List objects at intervals, to find those of dead incarnations that no row references."""
        now = self._clock.monotonic_ms()
        if self._listed_at is not None and now - self._listed_at < self._orphans_ms:
            return
        object_ids = await self._objects.find()
        # After the listing: an object that was committed meanwhile is not an orphan.
        await self._replica.barrier()
        rows = self._replica.state.objects.rows
        self._orphans = [object_id for object_id in object_ids if object_id not in rows]
        self._listed_at = now

    def _journals_written(self) -> dict[int, int]:
        """Return the newest journal of each incarnation to which anything was committed."""
        newest: dict[int, int] = {}
        for object_id in self._replica.state.objects.rows:
            if object_id > 0 and not is_stored(object_id):
                incarnation, _ = split_object_id(object_id)
                newest[incarnation] = max(object_id, newest.get(incarnation, 0))
        return newest

    def _is_closed(self, object_id: int, written: dict[int, int]) -> bool:
        """Whether no broker can commit to it any more."""
        state = self._replica.state
        incarnation, _ = split_object_id(object_id)
        if incarnation not in state.brokers.sequences:
            return True
        if is_stored(object_id):
            # Its writer condemns uncommitted objects. A committed object is complete.
            return object_id in state.objects.rows
        # A journal is written until its writer starts the next one.
        return object_id < written.get(incarnation, 0)

    async def delete(self, snapshot: int) -> int:
        """Delete objects that the snapshot at this entry lists as condemned; return the count."""
        condemned = self._replica.state.objects.condemned
        self.quarantine.keep(lambda key: key[0] != "object" or key[1] in condemned)
        old = {object_id for object_id, entry in condemned.items() if entry <= snapshot}
        self._condemned_since, ripe = self._ripe(old, self._condemned_since)
        gone: set[int] = set()
        held = {object_id for (object_id,) in self.quarantine.list_held("object")}
        for some in _pieces((object_id for object_id in ripe if object_id not in held), _DELETES):
            # In parallel: one at a time, objects would be created faster than they are deleted.
            tried = map(self._objects.delete, some)
            errors = await asyncio.gather(*tried, return_exceptions=True)
            deleted = self._select_deleted(dict(zip(some, errors, strict=True)))
            if deleted:
                await self._replica.propose([ObjectsDropped(object_ids=deleted)])
            gone.update(deleted)
        if gone:
            log.info("deleted %d objects in which nothing lived", len(gone))
        self._orphans = [orphan for orphan in self._orphans if orphan not in gone]
        return len(gone)

    def _select_deleted(self, errors: dict[int, BaseException | None]) -> list[int]:
        """Return the objects that were deleted; a failed deletion is retried later.

        Raises:
            Unavailable: none was deleted, so the store cannot be reached.
        """
        failed = {object_id: error for object_id, error in errors.items() if error is not None}
        for object_id, error in failed.items():
            if len(failed) == len(errors) and isinstance(error, Unavailable):
                raise error
            self.quarantine.add(("object", object_id), f"deletion of object {object_id}", error)
        deleted = [object_id for object_id in errors if object_id not in failed]
        for object_id in deleted:
            self.quarantine.release(("object", object_id))
        return deleted

    def _ripe(self, ids: set[int], since: dict[int, int]) -> tuple[dict[int, int], list[int]]:
        """Return when each object was first seen, and the objects that have waited long enough."""
        now = self._clock.monotonic_ms()
        seen = {object_id: since.get(object_id, now) for object_id in ids}
        return seen, sorted(
            object_id for object_id, at in seen.items() if now - at >= self._delay_ms
        )


def _pieces(objects: Iterable[int], size: int) -> Iterable[list[int]]:
    rest = iter(objects)
    while some := list(islice(rest, size)):
        yield some
