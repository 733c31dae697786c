"""The port of the cluster log: the guarantees of every backend.

To the log, entries are opaque bytes; `cluster/entry.py` defines their contents. Entry numbers are
1, 2, 3 …, without gaps, in the same order for all processes, and no number is ever reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

from rookery.errors import Conflict

MAX_ENTRY_BYTES: Final = 512 * 1024
"""The maximum size of an entry: a large commit is staged in parts."""

READ_BYTES: Final = 1024 * 1024
"""The default limit of one read."""

Durability = Literal["disk", "os"]
"""The guarantee an append waits for: on disk, or only in the operating system's memory."""


@dataclass(frozen=True, slots=True)
class ClusterLogTraits:
    """Backend-independent properties of a cluster log."""

    is_as_durable_as_store: bool
    """Whether entries are as durable as objects in the store; if so, small flushes may be stored in
    entries alone."""
    path: Path | None = None
    """The file of this host that holds the log; None if the log is elsewhere."""
    max_replay_entries: int | None = None
    """The maximum number of entries that a start may replay, which bounds the time between
    snapshots; None if reading an entry needs no separate request."""
    checks_store: bool = False
    """Whether the log is in the cluster's store and itself verifies that conditional writes work
    there."""
    plaintext_members: tuple[str, ...] = ()
    """The servers of the log on other hosts to which connections are not encrypted."""

    @property
    def is_on_this_host(self) -> bool:
        """Whether the log is a file on this host, which other hosts cannot open."""
        return self.path is not None


class LogEntry(NamedTuple):
    """One entry of the log with its number."""

    number: int
    data: bytes


class EntriesTrimmed(Conflict):
    """The requested entries were trimmed: start from a snapshot at or above the floor."""

    def __init__(self, after: int, floor: int) -> None:
        super().__init__(
            f"entries up to {floor} were trimmed, so there is no reading on after {after}: "
            "start from a newer snapshot"
        )
        self.floor = floor


class ReadableLog(Protocol):
    """The part of a cluster log that a reader needs.

    Every method may raise `Unavailable` (the log is unreachable or this handle is closed) and
    `Corrupt` (the stored data cannot be trusted: stop). A handle belongs to the event loop on
    which it was opened.
    """

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`, in order and without gaps.

        Returns as many as fit in `max_bytes`, but at least one if there is one. An empty list
        means that the log ended at or before `after` during the call.

        Raises:
            EntriesTrimmed: `after` is below the floor, so at least one requested entry was trimmed.
        """

    async def head(self) -> int:
        """Return the number of the last entry, 0 if there has never been one.

        It includes every append, by any process, that returned before this call started.
        """

    async def wait(self, after: int) -> int:
        """Return a head above `after` as soon as there is one, or immediately if there already is.

        The wait is notified, does not poll, and may be cancelled; this handle's own appends also
        wake it. If a writer is killed before its append returns, its entry may go unnoticed until
        the next entry, `read` or `head`.

        Raises:
            Unavailable: also when the handle is closed during the wait.
        """

    async def floor(self) -> int:
        """Return the highest trimmed number, 0 if none: reads may start after it."""


class ClusterLog(ReadableLog, Protocol):
    """A handle on a totally ordered log that any number of processes share.

    Its methods may raise the same errors as those of a `ReadableLog`.
    """

    async def append(self, data: bytes) -> int:
        """Append one entry and return its number.

        On return, the entry has the handle's durability, every read by any process returns it, and
        every `head` that starts later includes it.

        Raises:
            ValueError: the entry exceeds `MAX_ENTRY_BYTES`; nothing was appended.
            Unavailable: it is unknown whether the entry was appended; the same holds when the
                call is cancelled. Do not append it again without reading the log to look for it.
        """

    async def trim(self, before: int) -> None:
        """Raise the floor to `before - 1` and delete the entries up to it.

        The floor never decreases: a `before` lower than an earlier one has no effect. Numbering
        continues unchanged. The caller must ensure that a snapshot covers the deleted entries.
        After an error or a cancelled call the floor may or may not be raised, and the next trim
        deletes the remaining entries.

        Raises:
            ValueError: `before` is beyond the log's end.
        """

    async def begin_after(self, number: int) -> None:
        """Make an empty log begin after a number: head and floor become that number.

        This is for a log whose data was lost and is rebuilt elsewhere, because numbers must not be
        reused. No other process may use the log during the call.

        Raises:
            Conflict: the log has, or has had, an entry; it is unchanged.
            ValueError: the number is below 1.
        """

    async def close(self) -> None:
        """Close the handle; closing it twice is not an error.

        Appends in progress complete. Pending waits and all later calls raise `Unavailable`.
        """


def check_entry(data: bytes) -> None:
    """Reject an entry that exceeds the log's size limit."""
    if len(data) > MAX_ENTRY_BYTES:
        raise ValueError(
            f"an entry of {len(data)} bytes exceeds the log's {MAX_ENTRY_BYTES}: stage it in parts"
        )


def check_trim(before: int, head: int) -> None:
    """Reject a trim beyond the end of the log."""
    if before > head + 1:
        raise ValueError(f"cannot trim entries before {before}: the log ends at {head}")


def check_beginning(number: int) -> None:
    """Reject a number below 1."""
    if number < 1:
        raise ValueError(f"a log cannot be made to begin after {number}: it begins after 0 anyhow")


def check_empty(head: int) -> None:
    """Reject a new beginning for a log that has had entries."""
    if head:
        raise Conflict(
            f"the cluster log has had entries, up to {head}: only an empty one can begin elsewhere"
        )
