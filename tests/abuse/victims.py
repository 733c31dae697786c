"""A server process that is attacked: the ways in, and the probes that observe it from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from kio.schema.errors import ErrorCode

from rookery.testing.wait import wait_until
from tests.abuse.attack import Attacker, Door
from tests.abuse.batches import GOOD
from tests.abuse.topics import code_of_produce, produce_request

SPARE_SOCKETS = 3
OWN_TOPIC = "own"
"""The topic of good clients, which no guest may use."""


class Role(StrEnum):
    """What a client may do."""

    ANYONE = "anyone"
    """Everything: the server asks for no login."""
    MEMBER = "member"
    """Everything with topics, groups and transactions: access rules allow it."""
    GUEST = "guest"
    """Nothing: it has logged in, and no rule allows it anything."""
    STRANGER = "stranger"
    """Only to log in, for which it has no password."""


class Victim(ABC):
    """A server process that is attacked."""

    port: int
    folder: Path
    log: Path

    @property
    @abstractmethod
    def pid(self) -> int:
        """The process."""

    @property
    @abstractmethod
    def doors(self) -> Mapping[Role, Door]:
        """The ways in."""

    @property
    @abstractmethod
    def door(self) -> Door:
        """The way in for good clients."""

    @property
    def owner(self) -> Door:
        """The way in for clients that may use all topics, groups and transactions."""
        return self.doors.get(Role.ANYONE) or self.doors[Role.MEMBER]

    @abstractmethod
    def words(self, start: int = 0) -> str:
        """Return what it has printed and logged, from a byte on."""

    @abstractmethod
    def ended(self, within: float) -> int | None:
        """Return the exit status, waiting `within` seconds for it; None if it still runs."""

    @abstractmethod
    def stop(self, within: float = 10.0) -> int:
        """Ask it to stop, and return its exit status."""

    @staticmethod
    def question(line: Attacker) -> None:
        """Produce a record, as good clients do."""
        answer = line.ask(produce_request(OWN_TOPIC, GOOD))
        assert answer is not None, "the server has closed the connection of a good client"
        assert code_of_produce(answer) is ErrorCode.none

    def resident(self) -> int:
        """Return the bytes of memory that it uses now."""
        return self._status("VmRSS")

    def forget_peak(self) -> int:
        """Reset the recorded peak of its memory; return its present use."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.resident()

    def peak(self) -> int:
        """Return the most that it has used since."""
        return self._status("VmHWM")

    def sockets(self) -> int:
        """Return how many sockets it holds."""
        count = 0
        for descriptor in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += str(descriptor.readlink()).startswith("socket:")
        return count

    def wait_for_sockets(self, count: int) -> None:
        """Return when at most `count` sockets are left, plus a few that other clients use."""
        wait_until(self.sockets, "sockets", accepts=lambda left: left <= count + SPARE_SOCKETS)

    def wait_for_memory(self, limit: int) -> None:
        """Return when it uses at most `limit` bytes of memory."""
        wait_until(self.resident, f"at most {limit} bytes", accepts=lambda used: used <= limit)

    def wait_for_words(self, words: str) -> None:
        """Return when it has logged `words`."""
        wait_until(self.words, f"{words!r} in the log", accepts=lambda log: words in log)

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)
