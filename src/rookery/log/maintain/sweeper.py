"""Deletes what nothing lives in: condemned first, deleted later, forgotten last.

    nothing lives in it ──(delay)──► ObjectsCondemned ──(delay, and a snapshot)──► delete
                                                                   ──► ObjectsDropped

The first delay lets slow fetches end. The second, and the snapshot, see to it that a cluster log
rebuilt from the newest snapshot finds every object that the snapshot's rows name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple, Protocol

from rookery.clock import Clock
from rookery.cluster.events.log import ObjectsCondemned, ObjectsDropped
from rookery.cluster.events.sinks import SinkAborted
from rookery.cluster.replica import IncarnationFenced, Replica
from rookery.errors import Unavailable
from rookery.formats.keys import is_stored, split_object_id
from rookery.log.maintain.quarantine import Quarantine

log = logging.getLogger(__name__)

_AT_ONCE: Final = 1000
_DELETES: Final = 32


class Bin(Protocol):
    """Where objects are found and deleted: journal files, objects in a store, or both."""

    async def found(self) -> list[int]:
        """Return the ids of all journals and shared objects that are there."""

    async def delete(self, object_id: int) -> None:
        """Delete an object and what lies beside it; that it is gone already is no error."""


class Swept(NamedTuple):
    """What a sweep has done."""

    condemned: int
    deleted: int


class Sweeper:
    """Sweeps, by the clock of the process it runs in."""

    def __init__(
        self, replica: Replica, objects: Bin, clock: Clock, delay_ms: int, orphans_ms: int
    ) -> None:
        """Sweep nothing yet.

        Args:
            replica: knows what lives.
            objects: where it lies.
            clock: times the delays.
            delay_ms: how long an object has had nothing in it before it is condemned, and how
                long it has been condemned before it is deleted.
            orphans_ms: how often objects are looked for that no row ever named.
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

    async def sweep(self, snapshot: int) -> Swept:
        """Condemn and delete what may be; `snapshot` is the entry of the newest snapshot."""
        deleted = await self.delete(snapshot)
        return Swept(await self.condemn(), deleted)

    async def condemn(self) -> int:
        """Condemn objects that nothing lives in; return how many."""
        state = self._replica.state
        with self.quarantine.guard(("sinks",), "expiry of staged objects", (IncarnationFenced,)):
            await self._give_up_overdue()
        with self.quarantine.guard(
            ("orphans",), "search for orphaned objects", (IncarnationFenced,)
        ):
            await self._look_for_orphans()
        written = self._journals_written()
        empty = {
            one
            for one in (*state.objects.empty(state.brokers.sequences), *self._orphans)
            if not state.objects.rows.get(one)
            and one not in state.objects.condemned
            and self._is_closed(one, written)
        }
        self._empty_since, ripe = self._ripe(empty, self._empty_since)
        count = 0
        for some in _pieces(ripe, _AT_ONCE):
            [outcome] = await self._replica.propose([ObjectsCondemned(object_ids=some)])
            count += len(outcome.value)
        return count

    async def _give_up_overdue(self) -> None:
        """Let go what was staged for a sink and never committed; that condemns it, too."""
        overdue = self._replica.state.sinks.overdue(self._clock.now_ms())
        for some in _pieces(overdue, _AT_ONCE):
            await self._replica.propose([SinkAborted(object_ids=some)])

    async def _look_for_orphans(self) -> None:
        """List, now and then: whatever a dead incarnation has left and no row names."""
        now = self._clock.monotonic_ms()
        if self._listed_at is not None and now - self._listed_at < self._orphans_ms:
            return
        found = await self._objects.found()
        # After the list: what was committed meanwhile must not be taken for an orphan.
        await self._replica.barrier()
        rows = self._replica.state.objects.rows
        self._orphans = [one for one in found if one not in rows]
        self._listed_at = now

    def _journals_written(self) -> dict[int, int]:
        """Return the newest journal of each incarnation, as far as anything was committed to it."""
        newest: dict[int, int] = {}
        for object_id in self._replica.state.objects.rows:
            if object_id > 0 and not is_stored(object_id):
                incarnation, _ = split_object_id(object_id)
                newest[incarnation] = max(object_id, newest.get(incarnation, 0))
        return newest

    def _is_closed(self, object_id: int, written: dict[int, int]) -> bool:
        """Whether nobody can commit it any more."""
        state = self._replica.state
        incarnation, _ = split_object_id(object_id)
        if incarnation not in state.brokers.sequences:
            return True
        if is_stored(object_id):
            # Its writer condemns what it did not commit; what was committed is whole.
            return object_id in state.objects.rows
        # A journal is written until the next one of its writer is begun.
        return object_id < written.get(incarnation, 0)

    async def delete(self, snapshot: int) -> int:
        """Delete objects that the snapshot of this entry knows to be condemned; return how many."""
        condemned = self._replica.state.objects.condemned
        self.quarantine.keep(lambda key: key[0] != "object" or key[1] in condemned)
        old = {one for one, entry in condemned.items() if entry <= snapshot}
        self._condemned_since, ripe = self._ripe(old, self._condemned_since)
        gone: set[int] = set()
        held = {object_id for (object_id,) in self.quarantine.held("object")}
        for some in _pieces((one for one in ripe if one not in held), _DELETES):
            # Together: one after the other, a store would get objects faster than it loses them.
            tried = map(self._objects.delete, some)
            errors = await asyncio.gather(*tried, return_exceptions=True)
            deleted = self._deleted(dict(zip(some, errors, strict=True)))
            if deleted:
                await self._replica.propose([ObjectsDropped(object_ids=deleted)])
            gone.update(deleted)
        if gone:
            log.info("deleted %d objects in which nothing lived", len(gone))
        self._orphans = [one for one in self._orphans if one not in gone]
        return len(gone)

    def _deleted(self, errors: dict[int, BaseException | None]) -> list[int]:
        """Return the objects that were deleted; one that was not is tried again later.

        Raises:
            Unavailable: none was, so the store is out of reach.
        """
        failed = {one: error for one, error in errors.items() if error is not None}
        for object_id, error in failed.items():
            if len(failed) == len(errors) and isinstance(error, Unavailable):
                raise error
            self.quarantine.add(("object", object_id), f"deletion of object {object_id}", error)
        deleted = [one for one in errors if one not in failed]
        for object_id in deleted:
            self.quarantine.release(("object", object_id))
        return deleted

    def _ripe(self, found: set[int], since: dict[int, int]) -> tuple[dict[int, int], list[int]]:
        """Note since when each has been found; return that, and who has been for long enough."""
        now = self._clock.monotonic_ms()
        seen = {one: since.get(one, now) for one in found}
        return seen, sorted(one for one, at in seen.items() if now - at >= self._delay_ms)


def _pieces(objects: Iterable[int], size: int) -> Iterable[list[int]]:
    rest = iter(objects)
    while some := list(islice(rest, size)):
        yield some
