"""The port of the cluster log: what every backend promises, and what callers may rely on.

Entries are bytes to the log; `cluster/entry.py` says what is in them. Numbers are 1, 2, 3 …,
without a hole, in the order that all processes see, and no number is ever given twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from rookery.errors import Conflict

MAX_ENTRY_BYTES: Final = 512 * 1024
"""The largest entry: a large commit is staged in parts (correctness 2)."""

READ_BYTES: Final = 1024 * 1024
"""How much one read returns unless told otherwise."""

Durability = Literal["disk", "os"]
"""What an append waits for: the disk, or the operating system's memory only."""


@dataclass(frozen=True, slots=True)
class ClusterLogTraits:
    """What callers may know of a cluster log, whichever backend it has."""

    is_as_durable_as_store: bool
    """Whether entries survive all that objects in the store survive; if so, entries alone may
    hold small flushes."""
    path: Path | None = None
    """The file of this host that holds the log; None if the log is elsewhere."""
    max_replay_entries: int | None = None
    """Snapshots must be so frequent that a start replays no more entries than this; None if an
    entry costs a start no request of its own."""
    checks_store: bool = False
    """Whether the log is in the cluster's store and checks by itself that conditional writes
    work there."""

    @property
    def is_on_this_host(self) -> bool:
        """Whether the log is a file of this host, which other hosts cannot open."""
        return self.path is not None


class LogEntry(NamedTuple):
    """One entry of the log, by its number."""

    number: int
    data: bytes


class EntriesTrimmed(Conflict):
    """The entries asked for are gone: start from a snapshot at or above the floor."""

    def __init__(self, after: int, floor: int) -> None:
        super().__init__(
            f"entries up to {floor} were trimmed, so there is no reading on after {after}: "
            "start from a newer snapshot"
        )
        self.floor = floor


class ClusterLog(Protocol):
    """A handle on a totally ordered log that any number of processes share.

    Every method may raise `Unavailable` (the log is out of reach or this handle is closed) and
    `Corrupt` (what is stored cannot be trusted: stop). A handle belongs to the event loop it
    was opened on.
    """

    async def append(self, data: bytes) -> int:
        """Put one entry at the end of the log and return its number.

        When it returns, the entry is as durable as the handle's durability says, every read by
        any process finds it, and every `head` begun afterwards counts it.

        Raises:
            ValueError: the entry exceeds `MAX_ENTRY_BYTES`; nothing was appended.
            Unavailable: it is not known whether the entry was appended, and the same holds
                when the call is cancelled. Never append it again blindly: read the log and
                look for it (correctness 1).
        """

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`, in order and without a hole.

        Returns as many as fit in `max_bytes`, but always one if there is one; an empty list
        means that the log ended at or before `after` during the call.

        Raises:
            Trimmed: `after` is below the floor, so some entry asked for is gone.
        """

    async def head(self) -> int:
        """Return the number of the last entry, 0 if there has never been one.

        It counts every append, by any process, that had returned before this call began.
        """

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one; at once if there is already.

        It is woken, not polled, and may be cancelled; this handle's own appends wake it too. An
        entry whose writer was killed before its append returned may go unnoticed until the next
        entry, `read` or `head`.

        Raises:
            Unavailable: also when the handle is closed while this waits.
        """

    async def trim(self, before: int) -> None:
        """Raise the floor to `before - 1` and let the entries up to there go.

        A floor never sinks: a lower `before` than an earlier one does nothing. Numbers go on
        as if nothing had been trimmed. The caller sees to it that a snapshot holds what goes
        (correctness 10). After an error or a cancelled call the floor may be raised or not, and
        the next trim removes what was left.

        Raises:
            ValueError: `before` is beyond the log's end.
        """

    async def floor(self) -> int:
        """Return the highest number that was trimmed, 0 if none: reads may start after it."""

    async def begin_after(self, number: int) -> None:
        """Make an empty log begin after a number: head and floor are that number from now on.

        For a log whose data was lost and is rebuilt elsewhere: numbers that were given once must
        not be given again. Let no other process use the log meanwhile.

        Raises:
            Conflict: the log has, or has had, an entry; it is untouched.
            ValueError: the number is below 1.
        """

    async def close(self) -> None:
        """Let the handle go; closing twice is no error.

        Appends under way are carried out, those who wait get `Unavailable`, and so does every
        later call.
        """


def check_entry(data: bytes) -> None:
    """Refuse an entry that is larger than the log takes."""
    if len(data) > MAX_ENTRY_BYTES:
        raise ValueError(
            f"an entry of {len(data)} bytes exceeds the log's {MAX_ENTRY_BYTES}: stage it in parts"
        )


def check_trim(before: int, head: int) -> None:
    """Refuse to trim what has not been written yet."""
    if before > head + 1:
        raise ValueError(f"cannot trim entries before {before}: the log ends at {head}")


def check_beginning(number: int) -> None:
    """Refuse a number that no log needs to begin after."""
    if number < 1:
        raise ValueError(f"a log cannot be made to begin after {number}: it begins after 0 anyhow")


def check_empty(head: int) -> None:
    """Refuse to let a log begin elsewhere that has had entries."""
    if head:
        raise Conflict(
            f"the cluster log has had entries, up to {head}: only an empty one can begin elsewhere"
        )
