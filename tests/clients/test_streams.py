"""Kafka Streams counts words exactly once, while it is killed, and while brokers are.

It does so directly, and through a proxy with each kind of nodes.
"""

from __future__ import annotations

import os
import signal
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from rookery.testing.broker import BrokerProcess
from rookery.testing.java import Java
from rookery.testing.probe import brokers_seen
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until
from tests.clients.peers import new_topic
from tests.proxies import MODES, proxy_before

pytestmark = [pytest.mark.kafka]

SOURCE = Path(__file__).parent / "streams" / "WordCount.java"
WORKERS = 3
PARTITIONS = 3
PATIENCE = 120.0
STEP = 300
"""The number of counts that are committed between two faults."""
LOOK_SECONDS = 0.02
QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("streams") / "data"
    with BrokerProcess(folder, workers=WORKERS, flags=["--durability", "os"]) as broker:
        yield broker


@pytest.fixture(scope="module", params=["direct", *MODES])
def entry(request: pytest.FixtureRequest, cluster: BrokerProcess) -> Iterator[str]:
    """The address that the program uses: of the brokers, or of a proxy before them."""
    if request.param == "direct":
        yield cluster.bootstrap
        return
    with proxy_before(cluster.bootstrap, request.param) as proxy:
        yield proxy.bootstrap


@pytest.fixture(scope="module")
def classes(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled."""
    folder = tmp_path_factory.mktemp("classes")
    java.compile(SOURCE, folder)
    return folder


@pytest.fixture
def count(
    cluster: BrokerProcess, entry: str, java: Java, classes: Path, tmp_path: Path
) -> WordCount:
    """A word count of the test's own."""
    lines, counts = (new_topic(cluster.bootstrap, PARTITIONS) for _ in range(2))
    return WordCount(java, classes, entry, lines, counts, tmp_path)


@dataclass(frozen=True)
class WordCount:
    """The program, and the topics it works on."""

    java: Java
    classes: Path
    bootstrap: str
    lines: str
    counts: str
    folder: Path

    def places(self) -> list[TopicPartition]:
        """Where its counts begin."""
        return [TopicPartition(self.counts, at, 0) for at in range(PARTITIONS)]

    def last_words(self) -> str:
        """What Java said last."""
        return (self.folder / "streams.log").read_text()[-3000:]

    @contextmanager
    def running(self, *settings: str, state: str = "state") -> Iterator[LoggedProcess]:
        """Run it until the end of the block, which kills it unless it has ended by then."""
        defaults = (
            f"bootstrap.servers={self.bootstrap}",
            f"application.id={self.lines}",
            f"state.dir={self.folder / state}",
        )
        command = self.java.command(
            *("WordCount", self.lines, self.counts, *defaults, *settings), classes=self.classes
        )
        process = LoggedProcess(command, self.folder / "streams.log")
        try:
            yield process
        finally:
            if process.ended() is None:
                process.kill()


class Lines:
    """A producer of lines of words, in a thread, until it is finished."""

    def __init__(self, count: WordCount) -> None:
        self.words = Counter[str]()
        """How often each word was written."""
        self._topic = count.lines
        self._producer = Producer(
            {"bootstrap.servers": count.bootstrap, "enable.idempotence": True, **QUIET}
        )
        self._stopping = Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    def finish(self) -> Counter[str]:
        """Write no more, and return how often each word was written."""
        self._stopping.set()
        self._thread.join(PATIENCE)
        assert self._producer.flush(PATIENCE) == 0
        return self.words

    def _work(self) -> None:
        number = 0
        while not self._stopping.wait(0.005):
            number += 1
            words = (f"all mod{number % 7} tens{number // 10 % 10}").split()
            self._producer.produce(self._topic, " ".join(words), key=str(number))
            self._producer.poll(0)
            self.words.update(words)


class Counts:
    """What the program has written so far."""

    def __init__(self, count: WordCount) -> None:
        self._count = count
        self._committed = _consumer(count, "read_committed")
        self._anything = _consumer(count, "read_uncommitted")

    def close(self) -> None:
        self._committed.close()
        self._anything.close()

    def wait_for_more(self) -> None:
        """Return when more is committed than now."""
        wanted = self._end(self._committed) + STEP
        self.wait_until(lambda: self._end(self._committed) >= wanted)

    def wait_for_open_transaction(self) -> None:
        """Return when something is written that is not committed."""
        self.wait_until(self.has_open_transaction)

    def has_open_transaction(self) -> bool:
        """Return whether something is written that is not committed."""
        return self._end(self._anything) > self._end(self._committed)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        """Return when something holds; fail with what Java said if it takes too long."""
        try:
            wait_until(holds, seconds=PATIENCE, pause=LOOK_SECONDS)
        except TimeoutError as error:
            raise TimeoutError(self._count.last_words()) from error

    def read(self) -> dict[str, list[int]]:
        """Return the committed counts of each word in the order in which they were written."""
        counts, ends = defaultdict[str, list[int]](list), 0
        consumer = _consumer(self._count, "read_committed")
        consumer.assign(self._count.places())
        while ends < PARTITIONS:
            (message,) = consumer.consume(1, PATIENCE)
            error = message.error()
            if error is None:
                counts[(message.key() or b"").decode()].append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
        consumer.close()
        return counts

    def _end(self, consumer: Consumer) -> int:
        def ends() -> list[int] | None:
            try:
                return [
                    consumer.get_watermark_offsets(place, PATIENCE)[1]
                    for place in self._count.places()
                ]
            except KafkaException:  # the broker that was asked has just been killed
                return None

        return sum(wait_until(ends, seconds=PATIENCE) or ())


def _consumer(count: WordCount, isolation: str) -> Consumer:
    settings = {"group.id": "counts", "enable.auto.commit": False, "enable.partition.eof": True}
    reach = {"bootstrap.servers": count.bootstrap, "isolation.level": isolation}
    return Consumer({**reach, **settings, **QUIET})


@pytest.fixture
def lines(count: WordCount) -> Iterator[Lines]:
    lines = Lines(count)
    yield lines
    lines.finish()


@pytest.fixture
def counts(count: WordCount) -> Iterator[Counts]:
    counts = Counts(count)
    yield counts
    counts.close()


def check(app: LoggedProcess, lines: Lines, counts: Counts) -> None:
    """Let the program count all lines; then every word must have been counted up by ones."""
    words = lines.finish()
    counts.wait_until(lambda: sum(map(len, counts.read().values())) >= words.total())
    app.stop(PATIENCE)

    read = counts.read()
    assert set(read) == set(words)
    assert {word: misfits for word in words if (misfits := astray(read[word], words[word]))} == {}


def astray(counts: list[int], times: int) -> list[int]:
    """Return what is around the first count that is not one more than the last; [] if all are."""
    expected = range(1, times + 1)
    pairs = enumerate(zip_longest(counts, expected))
    return next((counts[max(0, at - 2) : at + 3] or [0] for at, (a, b) in pairs if a != b), [])


def kill_amid_transaction(app: LoggedProcess, counts: Counts) -> None:
    """Kill it when it has written something that it has not committed yet."""
    while True:
        counts.wait_for_open_transaction()
        os.kill(app.pid, signal.SIGSTOP)  # an earlier state may be outdated
        if counts.has_open_transaction():
            break
        os.kill(app.pid, signal.SIGCONT)
    app.kill()


def all_are_back(cluster: BrokerProcess) -> bool:
    ports = range(cluster.port + 1, cluster.port + 1 + WORKERS)
    return all(len(brokers_seen(port)) == WORKERS for port in ports)


def test_streams_counts_words_exactly_once_when_the_application_is_killed(
    count: WordCount, lines: Lines, counts: Counts
) -> None:
    static = "group.instance.id=counter"
    with count.running(static) as app:
        counts.wait_for_more()
        kill_amid_transaction(app, counts)
    # It has its state, its place in the group and its transactional id again.
    with count.running(static) as app:
        counts.wait_for_more()
        kill_amid_transaction(app, counts)
    # On another host it has its place in the group at once, while its last transaction is still
    # open: that one must be over before anything after it is read. The state comes back from
    # the changelog.
    with count.running(static, state="other") as app:
        counts.wait_for_more()
        check(app, lines, counts)


def test_streams_counts_words_exactly_once_when_brokers_are_killed(
    cluster: BrokerProcess, count: WordCount, lines: Lines, counts: Counts
) -> None:
    with count.running() as app:
        counts.wait_for_more()
        for pid in cluster.worker_pids():
            os.kill(pid, signal.SIGKILL)
            counts.wait_for_more()
            counts.wait_until(lambda: all_are_back(cluster))
        check(app, lines, counts)
