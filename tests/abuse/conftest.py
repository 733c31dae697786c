"""Brokers with little memory in their own processes, and a client whose service must not suffer.

`victim` is open to everyone. `fortress` has one listener with TLS and logins, and access rules.
`target` runs a test once for each of `WAYS` to them, or for those that a module names. A module
with flags of its own overrides `flags`, and gets a server of its own.

After every test the broker must live, must have answered that client all the time and answer it
still, and must have logged nothing that it did not expect.
"""

from __future__ import annotations

import re
import resource
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from rookery.testing.wait import wait_until
from tests.abuse.attack import Attacker, Door, simple
from tests.abuse.brokers import Fortress
from tests.abuse.samples import TOPIC
from tests.abuse.targets import SERVERS, WAYS, Target
from tests.abuse.topics import make_topic
from tests.abuse.victims import Victim

# Address space, most of which is never touched: stacks of threads, libraries, files.
ADDRESS_BYTES = 4 * 1024**3
# What the allocator keeps after the largest of them, bombs and ten million tags: 44 to 125 MiB were
# seen, by the order in which they came. Bombs alone are held to 64 MiB.
GROWTH_BYTES = 160 * 1024**2
PAUSE_SECONDS = 0.02
ERROR_LINE = re.compile(r"^\S+ level=error ", re.MULTILINE)


class Bystander:
    """A client that repeats one request, and counts the answers."""

    def __init__(
        self,
        door: Door,
        question: Callable[[Attacker], None],
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self.asked = 0
        self.error: Exception | None = None
        self._door = door
        self._question = question
        self._pause_seconds = pause_seconds
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bystander", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Attacker(self._door) as line:
                while True:
                    self._question(line)
                    self.asked += 1
                    if self._is_done.wait(self._pause_seconds):
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


@pytest.fixture(scope="session", autouse=True)
def run_with_faults(own_victim: None) -> None:
    """Let all tests of this folder run with the faults."""


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Victim]]:
    """One server of each kind for all attacks: what one leaves behind would show in the next."""
    with ExitStack() as stack:

        @cache
        def find(server: str) -> Victim:
            return stack.enter_context(survived(server, tmp_path_factory.mktemp(server), ()))

        yield find


@contextmanager
def survived(server: str, folder: Path, flags: tuple[str, ...]) -> Iterator[Victim]:
    """Start a server, limit its memory, and check in the end that it has kept little."""
    with SERVERS[server](folder, flags) as broker:
        resource.prlimit(broker.pid, resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
        simple(broker.door)
        before = broker.resident()
        yield broker
        simple(broker.door)
        broker.wait_for_memory(before + GROWTH_BYTES)
        assert broker.stop() == 0


@pytest.fixture
def victim(shared: Callable[[str], Victim]) -> Victim:
    """The open broker."""
    return shared("open")


@pytest.fixture
def fortress(shared: Callable[[str], Victim]) -> Fortress:
    """The closed broker."""
    return cast("Fortress", shared("closed"))


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Return the flags of the server; with some, the test has one of its own."""
    return ()


@pytest.fixture(params=WAYS)
def target(
    request: pytest.FixtureRequest, flags: tuple[str, ...], tmp_path: Path
) -> Iterator[Target]:
    """A server and a way to it; the tests that ask for it run once for each."""
    server, role = WAYS[str(request.param)]
    if flags:
        with survived(server, tmp_path, flags) as own:
            yield Target(own, role)
    else:
        yield Target(cast("Victim", request.getfixturevalue("shared")(server)), role)


@pytest.fixture(autouse=True)
def bystander(request: pytest.FixtureRequest) -> Iterator[Bystander]:
    """Check after every test that no other client was affected."""
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


@pytest.fixture
def topic_id(target: Target) -> uuid.UUID:
    """The id of a topic that exists."""
    return topic_of(target.victim)


@cache
def topic_of(victim: Victim) -> uuid.UUID:
    return make_topic(victim.owner, TOPIC)
