"""Pins the topics that a job reads, so that they are not compacted in the meantime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rookery.cluster.state.topics import Topic
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.pins import Pins
from rookery.errors import Conflict

# A killed run blocks compaction of its source for no longer than this.
_PIN_MS: Final = 3_600_000


class PinnedTopics:
    """The pinned topics of one run."""

    def __init__(self, log: BlockingLog, topics: Sequence[Topic]) -> None:
        """Set up without any pin.

        Args:
            log: the log of the cluster that is read.
            topics: the topics that are read.
        """
        self._log = log
        self._ids = [topic.id for topic in topics]
        self._pins = Pins(log.log, _PIN_MS)

    def renew(self) -> None:
        """Pin the topics for a limited time from now on.

        Raises:
            Unavailable: the cluster log cannot be reached.
        """
        self._log.run(self._pins.hold(self._ids))

    def check(self) -> None:
        """Check that the topics were pinned continuously.

        Raises:
            Conflict: the pin expired before it was renewed: tasks may have read different records.
        """
        if self._pins.have_lapsed():
            raise Conflict(
                f"a slice took longer than its topics are held ({_PIN_MS // 60_000} minutes), and "
                "they may have been compacted meanwhile: run the job again, with smaller slices "
                "(slice_bytes, --slice-bytes)"
            )

    def __enter__(self) -> PinnedTopics:
        self.renew()
        return self

    def __exit__(self, *_: object) -> None:
        self._log.run(self._pins.release())
