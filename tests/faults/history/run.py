"""One run: workers, a nemesis, an orderly end, and the check of the history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from confluent_kafka.cimpl import NewTopic

from rookery.testing.wait import wait_until
from tests.faults.history import events
from tests.faults.history.checker import Finding, check
from tests.faults.history.clients import CLASSIC, CONSUMER, admin
from tests.faults.history.events import COMMITTED, UNCOMMITTED, History, Op, Place, State
from tests.faults.history.mortals import Make, Mortal
from tests.faults.history.nemesis import CLIENT, SLEEPER, Nemesis
from tests.faults.history.observer import Asking, Observer
from tests.faults.history.producers import PlainProducer, TxnProducer
from tests.faults.history.readers import Copier, Reader
from tests.faults.history.targets import Target
from tests.faults.history.worker import Worker

PLAIN: Final = "plain"
INPUTS: Final = "inputs"
PARTITIONS: Final = 3
PROTOCOLS: Final = {
    "classic": (CLASSIC, "range"),
    "sticky": (CLASSIC, "cooperative-sticky"),
    "consumer": (CONSUMER, ""),
}
"""The groups: of readers, and of copiers."""
_SECONDS: Final = 120.0
_WORK_SECONDS: Final = 300.0


@dataclass(frozen=True)
class Settings:
    """The settings of a run."""

    seed: int
    seconds: float
    faults: tuple[str, ...]
    gap: float = 5.0
    """The approximate number of seconds between two faults."""
    readers: tuple[str, ...] = ("classic", "sticky", "consumer")
    copiers: tuple[str, ...] = ("classic", "consumer")
    producers: int = 2
    """The number of producers of each kind; groups have as many members."""
    at_least: Mapping[str, int] = field(default_factory=dict)
    """The least counts before the run ends, by the names in `Result.counts`."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    findings: list[Finding]
    counts: Counter[str]
    """The number of actions by name."""
    recovery: float
    """The longest time from a fault's end to the next acknowledged record."""

    def __str__(self) -> str:
        done = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        kinds = Counter(finding.kind.value for finding in self.findings)
        findings = (
            ", ".join(f"{count} times {kind}" for kind, count in kinds.items()) or "no findings"
        )
        return f"{done}; at work again within {self.recovery:.1f} s; {findings}"


class Run:
    """All workers on a target."""

    def __init__(self, target: Target, settings: Settings, path: Path) -> None:
        """Prepare; `go` does it."""
        self._target = target
        self._settings = settings
        self._path = path
        self._outputs = {name: f"outputs-{name}" for name in settings.copiers}
        self.topics = [PLAIN, INPUTS, *self._outputs.values()]

    def go(self) -> Result:
        """Run all workers, and check the history.

        Raises:
            StuckError: something never came to its end.
            AssertionError: a worker is broken.
        """
        with self._path.open("a") as file:
            _create(self._target.bootstrap, self.topics)
            self._work(History(file))
        return judge(self._path)

    def _work(self, history: History) -> None:
        settings = self._settings
        producers = self._producers(history)
        copiers = self._copiers(history)
        readers = self._readers(history)
        groups = [f"readers-{name}" for name in settings.readers]
        groups += [f"copiers-{name}" for name in settings.copiers]
        observer = Observer(*self._common("observer", history), self._places(*self.topics), groups)
        crew = [*producers, *copiers, *readers, observer]
        mortals = [worker for worker in crew if isinstance(worker, Mortal)]
        nemesis = Nemesis(
            self._target, mortals, history, settings.seed, settings.faults, settings.gap
        )
        for worker in crew:
            worker.start()
        nemesis.start()
        try:
            Event().wait(settings.seconds)
            self._await_work()
            _end([nemesis])
            _end(producers)
            for reader in readers:
                if isinstance(reader, Reader):
                    reader.stays = True
            self._finish(history, copiers)
            _end([*readers, observer])
        finally:
            for worker in [*crew, nemesis]:
                worker.stop()

    def _await_work(self) -> None:
        """Continue until enough was done, however slow the host is."""
        wanted = Counter(self._settings.at_least)

        def counts() -> Counter[str]:
            lines = self._path.read_text().rpartition("\n")[0].splitlines()
            return _counts(list(map(events.parse, lines)))

        wait_until(counts, f"{wanted}", accepts=wanted.__le__, seconds=_WORK_SECONDS, pause=1.0)

    def _finish(self, history: History, copiers: list[Worker]) -> None:
        """Stop every worker in order, and read all records."""
        asking = Asking("last", self._target.bootstrap, history)
        sources, targets = self._places(PLAIN, INPUTS), self._places(*self._outputs.values())
        asking.wait_until_settled(sources)
        ends = asking.read_all(sources, COMMITTED)
        inputs = {place: end for place, end in ends.items() if place.topic == INPUTS}
        for name in self._outputs:
            asking.wait_until_committed(f"copiers-{name}", inputs)
        _end(copiers)
        if targets:
            asking.wait_until_settled(targets)
            ends |= asking.read_all(targets, COMMITTED)
        for name in self._settings.readers:
            asking.wait_until_committed(f"readers-{name}", ends)
        asking.read_all([*sources, *targets], UNCOMMITTED)
        asking.close()

    def _producers(self, history: History) -> list[Worker]:
        plain = partial(PlainProducer, places=self._places(PLAIN))
        txn = partial(
            TxnProducer,
            places=self._places(INPUTS),
            can_reuse_sequences=self._target.rejects_reused_sequences,
        )
        return [*self._crew("plain", plain, history), *self._crew("txn", txn, history)]

    def _copiers(self, history: History) -> list[Worker]:
        crew: list[Worker] = []
        for name, output in self._outputs.items():
            group = (f"copiers-{name}", *PROTOCOLS[name])
            make = partial(
                Copier,
                group=group,
                topics=(INPUTS, output),
                can_reuse_sequences=self._target.rejects_reused_sequences,
            )
            crew += self._crew(f"copier-{name}", make, history)
        return crew

    def _readers(self, history: History) -> list[Worker]:
        crew: list[Worker] = []
        for name in self._settings.readers:
            group = (f"readers-{name}", *PROTOCOLS[name])
            make = partial(Reader, group=group, topics=self.topics)
            crew += self._crew(f"reader-{name}", make, history)
        return crew

    def _crew(self, name: str, make: Make, history: History) -> list[Worker]:
        """Create the workers of a kind; the last of them can be killed."""
        crew: list[Worker] = []
        is_struck = not {CLIENT, SLEEPER}.isdisjoint(self._settings.faults)
        for number in range(1, self._settings.producers + 1):
            common = self._common(f"{name}-{number}", history)
            is_mortal = number == self._settings.producers and is_struck
            crew.append(Mortal(make, *common) if is_mortal else make(*common))
        return crew

    def _common(self, name: str, history: History) -> tuple[str, str, History, int]:
        return name, self._target.bootstrap, history, self._settings.seed

    def _places(self, *topics: str) -> list[Place]:
        return [Place(topic, number) for topic in topics for number in range(PARTITIONS)]


def judge(path: Path) -> Result:
    """Check a history."""
    known = events.read(path)
    return Result(check(known), _counts(known), _recovery(known))


def _counts(known: list[events.Event]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for event in known:
        if event.op is Op.SEND and event.state is State.OK:
            counts["records acknowledged"] += 1
        elif event.op is Op.COMMIT and event.state is State.OK:
            counts["transactions committed"] += 1
        elif event.op is Op.ABORT and event.state is State.OK:
            counts["aborted"] += 1
        elif event.op in {Op.COMMIT, Op.ABORT} and event.state is State.UNKNOWN:
            counts["transactions of unknown end"] += 1
        elif event.op is Op.READ:
            counts["records read by groups"] += len(event.records)
        elif event.op is Op.ASSIGNED:
            counts["assignments"] += 1
        elif event.op is Op.FAULT:
            counts["faults"] += 1
    return counts


def _recovery(known: list[events.Event]) -> float:
    """Return the longest time from a fault's end to the next record acknowledged."""
    acks = [event for event in known if event.op is Op.SEND and event.state is State.OK]
    ends = [event.at for event in known if event.op is Op.FAULT]
    times = [next((ack.at - end for ack in acks if ack.began >= end), 0.0) for end in ends if acks]
    return max(times, default=0.0)


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.stop()
    for worker in workers:
        worker.join()


def _create(bootstrap: str, topics: list[str]) -> None:
    client = admin(bootstrap)
    for future in client.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result(_SECONDS)
