"""Brokers in processes of their own, with little memory, and a client that others must not disturb.

`victim` is open to everyone. `fortress` has one listener with TLS and logins, and access rules;
`target` attacks both, and the second as a stranger and as a user without rules.

After every test the broker must live, must have answered that client all the time and answer it
still, and must have logged nothing that it did not expect.
"""

from __future__ import annotations

import re
import resource
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import pytest

from rookery.testing.wait import wait_until
from tests.abuse.attack import Attacker, Door, simple
from tests.abuse.samples import TOPIC
from tests.abuse.topics import make_topic
from tests.abuse.victims import FLAGS, Fortress, Target, Victim, open_fortress

# Address space, most of which is never touched: stacks of threads, libraries, files.
ADDRESS_BYTES = 4 * 1024**3
# What the allocator keeps after the largest of them, bombs and ten million tags: 44 to 125 MiB were
# seen, by the order in which they came. Bombs alone are held to 64 MiB.
GROWTH_BYTES = 160 * 1024**2
PAUSE_SECONDS = 0.02
ERROR_LINE = re.compile(r"^\S+ level=error ", re.MULTILINE)

V = TypeVar("V", bound=Victim)


class Bystander:
    """A client that asks a question again and again, and counts the answers."""

    def __init__(
        self, door: Door, question: Callable[[Attacker], None] = Attacker.ask_simple
    ) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self._door = door
        self._question = question
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Attacker(self._door) as line:
                while True:
                    self._question(line)
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


@pytest.fixture(scope="package")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """One broker for all attacks: what one of them leaves behind would show in the next."""
    with Victim(tmp_path_factory.mktemp("abuse") / "data", flags=FLAGS) as broker:
        yield from survive(broker)


@pytest.fixture(scope="package")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    """One closed broker for all attacks."""
    with open_fortress(tmp_path_factory.mktemp("fortress")) as broker:
        yield from survive(broker)


def survive(broker: V) -> Iterator[V]:
    """Limit a broker's memory, and check in the end that it has kept little."""
    resource.prlimit(broker.pid, resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    simple(broker.door)
    before = broker.resident()
    yield broker
    simple(broker.door)
    broker.wait_for_memory(before + GROWTH_BYTES)
    assert broker.stop() == 0


@pytest.fixture(params=["plaintext", "stranger", "guest"])
def target(request: pytest.FixtureRequest) -> Target:
    """A broker and a way to it; the tests that ask for it run once for each."""
    name = str(request.param)
    if name == "plaintext":
        broker = cast("Victim", request.getfixturevalue("victim"))
        return Target(name, broker, broker.door)
    closed = cast("Fortress", request.getfixturevalue("fortress"))
    return Target(name, closed, closed.stranger if name == "stranger" else closed.guest)


@pytest.fixture(autouse=True)
def bystander(request: pytest.FixtureRequest) -> Iterator[Bystander]:
    """Check after every test that nobody but the attacker has noticed."""
    broker = attacked(request)
    said = broker.log.stat().st_size
    other = Bystander(broker.door, broker.question)
    try:
        yield other
        other.await_answers(2)
    finally:
        other.stop()
    assert broker.ended(0) is None, broker.words(said)
    assert other.error is None
    simple(broker.door)
    words = broker.words(said)
    assert "Traceback" not in words, words[-4000:]
    assert not ERROR_LINE.search(words), words[-4000:]


def attacked(request: pytest.FixtureRequest) -> Victim:
    """Return the broker that a test attacks."""
    if "target" in request.fixturenames:
        return cast("Target", request.getfixturevalue("target")).victim
    name = "fortress" if "fortress" in request.fixturenames else "victim"
    return cast("Victim", request.getfixturevalue(name))


@pytest.fixture(scope="package")
def topic_id(victim: Victim) -> uuid.UUID:
    """The id of a topic that exists."""
    return make_topic(victim.door, TOPIC)
