"""A broker in a process of its own, with little memory, and a client that others must not disturb.

After every test the broker must live, must have answered that client all the time and answer it
still, and must have logged nothing that it did not expect.
"""

from __future__ import annotations

import resource
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from rookery.testing.broker import BrokerProcess
from rookery.testing.wait import wait_until
from tests.abuse.attack import Attacker, simple
from tests.abuse.samples import TOPIC
from tests.abuse.topics import make_topic

# Address space, most of which is never touched: stacks of threads, libraries, files.
ADDRESS_BYTES = 4 * 1024**3
# What the allocator keeps after the largest of them, bombs and ten million tags: 44 to 125 MiB were
# seen, by the order in which they came. Bombs alone are held to 64 MiB.
GROWTH_BYTES = 160 * 1024**2
PAUSE_SECONDS = 0.02
SPARE_SOCKETS = 3
FLAGS = ("--durability", "os", "--tail-bytes", "4194304", "--cache-bytes", "4194304")


class Bystander:
    """A client that asks a simple question again and again, and counts the answers."""

    def __init__(self, port: int) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self._port = port
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Attacker(self._port) as line:
                while True:
                    line.ask_simple()
                    self.asked += 1
                    if self._is_done.wait(PAUSE_SECONDS):
                        return
        except (OSError, AssertionError) as error:
            self.error = error

    def await_answers(self, count: int) -> None:
        """Return when it has had `count` more answers, or none is to be expected."""
        wanted = self.asked + count
        wait_until(lambda: self.asked >= wanted or self.error is not None, f"{wanted} answers")

    def stop(self) -> None:
        self._is_done.set()
        self._thread.join()


class Victim(BrokerProcess):
    """The broker that is attacked."""

    def resident(self) -> int:
        """Return the bytes of memory that it uses now."""
        return self._status("VmRSS")

    def forget_peak(self) -> int:
        """Begin anew to note the most that it uses; return what it uses now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return self.resident()

    def peak(self) -> int:
        """Return the most that it has used since."""
        return self._status("VmHWM")

    def sockets(self) -> int:
        """Return how many sockets it holds."""
        count = 0
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                count += str(one.readlink()).startswith("socket:")
        return count

    def wait_for_sockets(self, count: int) -> None:
        """Return when at most `count` sockets are left, plus a few that other clients use."""
        wait_until(self.sockets, "sockets", accepts=lambda left: left <= count + SPARE_SOCKETS)

    def wait_for_memory(self, limit: int) -> None:
        """Return when the broker uses at most `limit` bytes of memory."""
        wait_until(self.resident, f"at most {limit} bytes", accepts=lambda used: used <= limit)

    def wait_for_words(self, words: str) -> None:
        """Return when the broker has logged `words`."""
        wait_until(self.words, f"{words!r} in the log", accepts=lambda log: words in log)

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise LookupError(name)


@pytest.fixture(scope="package")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One broker for all attacks: what one of them leaves behind would show in the next."""
    with Victim(tmp_path_factory.mktemp("abuse") / "data", flags=FLAGS) as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
        simple(broker.port)
        before = broker.resident()
        yield broker
        simple(broker.port)
        broker.wait_for_memory(before + GROWTH_BYTES)
        assert broker.stop() == 0


@pytest.fixture(autouse=True)
def bystander(victim: Victim) -> Iterator[Bystander]:
    """Check after every test that nobody but the attacker has noticed."""
    said = victim.log.stat().st_size
    other = Bystander(victim.port)
    try:
        yield other
        other.await_answers(2)
    finally:
        other.stop()
    assert victim.ended(0) is None, victim.words(said)
    assert other.error is None
    simple(victim.port)
    words = victim.words(said)
    assert "Traceback" not in words, words[-4000:]
    assert "level=error" not in words, words[-4000:]


@pytest.fixture(scope="package")
def topic_id(victim: Victim) -> uuid.UUID:
    """The id of a topic that exists."""
    return make_topic(victim.port, TOPIC)
