"""Compares our digests of the state with those that other writers put into their entries.

docs/designs/0010-digests-and-upgrades.md explains why this is sufficient.
"""

from __future__ import annotations

import logging
from typing import Final

from rookery.cluster.entry import Entry
from rookery.cluster.state.state import State
from rookery.errors import Corrupt

log = logging.getLogger(__name__)

# The digests of this many entries are kept, to compare them with other writers' digests.
_DIGESTS: Final = 4096


class _Dispute:
    """A writer whose state differs from ours, although ours matches the log."""

    __slots__ = ("_answer", "_seen")

    def __init__(self, seen: int) -> None:
        self._seen = seen
        self._answer: int | None = None

    def answer(self, number: int, entry: Entry) -> None:
        """Record the first entry of ours that lets the writer detect the difference."""
        if self._answer is None and entry.seen >= self._seen:
            self._answer = number

    def is_upheld(self, entry: Entry) -> bool:
        """Whether the writer continues although it has read our entry."""
        return self._answer is not None and entry.seen >= self._answer


class DigestCheck:
    """Our digests after recent entries, and the writers whose digests differ from them."""

    def __init__(self) -> None:
        self._digests: dict[int, int] = {}
        self._disputes: dict[int, _Dispute] = {}

    def restart(self, state: State) -> None:
        """Continue from a state that was not computed entry by entry here."""
        self._digests = {state.applied: state.digest}

    def record(self, number: int, digest: int) -> None:
        """Keep our digest after an entry."""
        self._digests[number] = digest
        self._digests.pop(number - _DIGESTS, None)

    def at(self, number: int) -> int | None:
        """Return our digest after a recent entry; None if the entry is too old."""
        return self._digests.get(number)

    def differs(self, entry: Entry) -> bool:
        """Whether the entry's writer had a different state than ours after the same entry."""
        own = self._digests.get(entry.seen)
        if own is None:
            return False
        if own == entry.digest:
            self._disputes.pop(entry.incarnation, None)
        return own != entry.digest

    def compare(self, logged: State, number: int, entry: Entry) -> None:
        """Compare our digest with that of a state that was recomputed from the log.

        Args:
            logged: the recomputed state.
            number: the number of the entry that differs.
            entry: that entry.

        Raises:
            Corrupt: our state is wrong.
        """
        if self._digests.get(logged.applied) != logged.digest:
            raise Corrupt(
                "the state of this process is not the one that the cluster log gives: "
                f"entry {number} of incarnation {entry.incarnation} shows it. Its memory was "
                "damaged, or there is a fault in Rookery; start the process again, which reads the "
                "log from its start"
            )

    def dispute(self, number: int, entry: Entry) -> None:
        """Report and record a writer whose state is wrong."""
        writer = entry.incarnation
        log.error(
            "incarnation %d wrote entry %d with a state that is not the one that the cluster "
            "log gives after entry %d; that process has to be started again",
            writer, number, entry.seen,
        )  # fmt: skip
        if writer:  # else a process that registers: it is known by its next entry
            self._disputes[writer] = _Dispute(entry.seen)

    def is_disputed(self, writer: int) -> bool:
        """Whether the state of a writer is known to be wrong."""
        return writer in self._disputes

    def answer(self, number: int, entry: Entry) -> None:
        """Record an entry of ours, which disputed writers can compare with their own state."""
        for dispute in self._disputes.values():
            dispute.answer(number, entry)

    def judge(self, entry: Entry, incarnation: int) -> None:
        """Decide whether we stop because a disputed writer continues.

        Args:
            entry: the entry of the disputed writer.
            incarnation: our own incarnation.

        Raises:
            Corrupt: the writer has read an entry of ours, and it is older than this process.
        """
        writer = entry.incarnation
        if self._disputes[writer].is_upheld(entry) and writer < incarnation:
            raise Corrupt(
                f"incarnation {writer}, which is older than this process, applies the cluster log "
                f"by other rules: their states differ after entry {entry.seen}. Start all brokers "
                "with the same release of Rookery"
            )
