"""The floor: prevents trimmed numbers from being reused.

Once the object of entry n is deleted, a writer that was suspended could create n again. A reader
that was suspended could take the gap for the log's end. Hence two rules:

- The floor is raised first. Objects below it are deleted `DELAY_MS` later, by a process that has
  seen that floor for at least that long on its own clock.
- A result about object n (absent, created, or its contents) counts only if the floor, *read
  afterwards*, is below n. A read of the floor that was sent less than half of `DELAY_MS` ago is
  also sufficient: anything trimmed after that read was not deleted yet.

The clock includes time during which the machine was suspended. Wall time is checked as well,
because it may be the only clock that shows that a virtual machine was stopped. A jump of it costs
one request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.clock import Clock
from rookery.cluster.objects.entries import EntryObjects
from rookery.cluster.objects.layout import FLOOR_KEY, FloorLimits, read_limits, write_limits
from rookery.errors import Conflict, Corrupt
from rookery.store.port import Store

DELAY_MS: Final = 10 * 60 * 1000
"""How long trimmed entries are kept. All processes must agree on it, so it is not a setting."""

# The progress of deletion is recorded after this many entries.
_STEP: Final = 1024
_MAX_SIGHTINGS: Final = 64


class _Moment(NamedTuple):
    boottime_ms: int
    wall_ms: int


class _Sighting(NamedTuple):
    floor: int
    boottime_ms: int


class Floor:
    """The floor of one log, as known to a handle."""

    def __init__(self, store: Store, entries: EntryObjects, clock: Clock) -> None:
        self._store = store
        self._entries = entries
        self._clock = clock
        self._limits = FloorLimits(0, 0)
        self._asked: _Moment | None = None
        self._sightings: list[_Sighting] = []

    @property
    def value(self) -> int:
        """The highest floor seen so far: the actual floor may be higher."""
        return self._limits.floor

    async def read(self) -> int:
        """Read the floor from the store."""
        await self._read()
        return self.value

    async def confirm(self) -> int:
        """Return a floor that decides whether results obtained before this call count."""
        return self.value if self._is_fresh() else await self.read()

    async def lift(self, floor: int) -> None:
        """Raise the floor, if it is lower."""
        await self._change(lambda limits: limits._replace(floor=max(limits.floor, floor)))

    async def begin(self, floor: int) -> None:
        """Create the first floor; raises Conflict if there is one already."""
        limits = FloorLimits(floor, deleted=floor)
        await self._store.create(FLOOR_KEY, [write_limits(limits)])
        self._see(limits)

    async def sweep(self) -> None:
        """Delete entries that were below the floor for long enough, and record the progress."""
        due = self._due()
        while (first := self._limits.deleted + 1) <= due:
            last = min(due, first + _STEP - 1)
            await self._entries.delete(first, last)
            await self._note_deleted(last)

    async def bury(self, number: int) -> None:
        """Delete an entry's object that was created after its number had been deleted."""
        if number <= self._limits.deleted:
            await self._entries.delete(number, number)

    async def _note_deleted(self, last: int) -> None:
        await self._change(lambda limits: limits._replace(deleted=max(limits.deleted, last)))

    async def _change(self, change: Callable[[FloorLimits], FloorLimits]) -> None:
        while True:
            version = await self._read()
            changed = change(self._limits)
            if changed == self._limits:
                return
            try:
                if version is None:
                    await self._store.create(FLOOR_KEY, [write_limits(changed)])
                else:
                    await self._store.replace(FLOOR_KEY, write_limits(changed), version)
            except Conflict:
                continue
            self._see(changed)
            return

    async def _read(self) -> str | None:
        """Read from the store; return the version of the object, None if there is none."""
        asked = self._now()
        before = self._limits
        stored = await self._store.read_version(FLOOR_KEY)
        limits = FloorLimits(0, 0) if stored is None else read_limits(stored[0])
        if limits.floor < before.floor or limits.deleted < before.deleted:
            raise Corrupt(
                f"the log was trimmed up to {before.floor}, but object {FLOOR_KEY!r} now says "
                f"{limits.floor}: someone else changed or removed it; restore it"
            )
        self._see(limits)
        if self._asked is None or asked.boottime_ms >= self._asked.boottime_ms:
            self._asked = asked
        return None if stored is None else stored[1]

    def _see(self, limits: FloorLimits) -> None:
        """Merge limits read from the store; responses may arrive out of order."""
        self._limits = FloorLimits(*map(max, self._limits, limits))
        if limits.floor > (self._sightings[-1].floor if self._sightings else 0):
            # A later time for a floor is always safe, so a full list may lose its last sighting.
            if len(self._sightings) == _MAX_SIGHTINGS:
                self._sightings.pop()
            self._sightings.append(_Sighting(limits.floor, self._clock.boottime_ms()))

    def _due(self) -> int:
        """Return the highest number whose object can be deleted."""
        due_since = self._clock.boottime_ms() - DELAY_MS
        due = [sighting.floor for sighting in self._sightings if sighting.boottime_ms <= due_since]
        # The last due sighting is kept, because later ones are compared with it.
        del self._sightings[: max(0, len(due) - 1)]
        return due[-1] if due else 0

    def _is_fresh(self) -> bool:
        if self._asked is None:
            return False
        now = self._now()
        passed_ms = now.boottime_ms - self._asked.boottime_ms
        jumped_ms = abs(now.wall_ms - self._asked.wall_ms)
        return max(passed_ms, jumped_ms) < DELAY_MS // 2

    def _now(self) -> _Moment:
        return _Moment(self._clock.boottime_ms(), self._clock.now_ms())
