"""The files that a record passes through, from the socket to a row of Spark's.

`scripts/walk` sends a record through a broker in this process: it is produced, fetched from memory,
fetched from disk, moved into a segment, and read by Spark's reader without Spark. The files whose
functions run are compared with the table in the design page of the walk.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Final, NamedTuple

import rookery
from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemClock
from rookery.log.settings import RewriteSettings
from rookery.records.recordcodec import BatchSettings, Record, build
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_SOURCE: Final = Path(rookery.__file__).parents[1]
_TOPIC: Final = "walk"
# Too large for an entry of the cluster log: it goes to the journal.
_VALUE_BYTES: Final = 200_000
_REST: Final = BrokerSettings(durability="os", upkeep_interval_ms=3_600_000)
_UPKEEP: Final = BrokerSettings(
    durability="os",
    upkeep_interval_ms=50,
    snapshot_entries=1,
    rewrite=RewriteSettings(
        merge_age_ms=1, segment_bytes=100_000, segment_age_ms=1, segment_min_bytes=1
    ),
)
_ROW: Final = re.compile(r"^\| ([A-J]'?)\. [^|]*\|([^|]*)\| ([0-9]+) \|$", re.MULTILINE)
_NAME: Final = re.compile(r"`([^`]+)`")
# These are compiled, only declare values, run when the broker starts, or are other processes.
_SILENT: Final = re.compile(
    r"\.pyx$|/port$|/outcome$|^wire/messages/|^cluster/events/|^broker/storage/caretaker$"
)


class Phase(NamedTuple):
    """A row of the table."""

    name: str
    files: list[str]
    sum: int
    """The number of files up to this phase."""


class Recorder:
    """Notes which files have functions that run, in this thread and in those started later."""

    def __init__(self) -> None:
        self.steps: dict[str, set[str]] = {}
        """The files of every step."""
        self._codes: set[CodeType] = set()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Watch all calls in a block."""
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name the step that runs in a block."""
        self._codes = set()
        yield
        # Other threads continue: a copy is made in one step.
        self.steps[name] = set(filter(None, map(_file, self._codes.copy())))

    def _on_call(self, frame: FrameType, _event: str, _arg: object) -> None:
        self._codes.add(frame.f_code)


def _file(code: CodeType) -> str | None:
    """Return the file of a function of ours, None for other code."""
    path = Path(code.co_filename)
    # Bodies of modules and classes run when they are imported.
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(_SOURCE):
        return None
    name = path.relative_to(_SOURCE).with_suffix("").as_posix()
    return name.removeprefix("rookery/").removesuffix("/__init__")


def walk(folder: Path) -> dict[str, set[str]]:
    """Send a record through a broker over a folder; return the files of each step."""
    recorder = Recorder()
    with recorder.watch():
        with ServedBroker(folder, _REST) as broker:
            _create(broker.bootstrap)
            producer_id = _init_producer(broker.bootstrap)
            _produce(broker.bootstrap, producer_id, 0)
            with recorder.step("produce"):
                _produce(broker.bootstrap, producer_id, 1)
            with recorder.step("fetch from memory"):
                _fetch(broker.bootstrap)
        with ServedBroker(folder, _REST) as broker, recorder.step("fetch from disk"):
            _fetch(broker.bootstrap)
        with recorder.step("segment"), ServedBroker(folder, _UPKEEP):
            wait_until(lambda: any((folder / "store").rglob("*.kfs")))
            wait_until(lambda: any((folder / "store").rglob("*.snapshot")))
        with ServedBroker(folder, _REST) as broker, recorder.step("fetch from a segment"):
            _fetch(broker.bootstrap)
        _read(recorder, folder)
    return recorder.steps


def _read(recorder: Recorder, folder: Path) -> None:
    from pyspark_rookery import DefaultSource  # noqa: PLC0415 (only with pyspark)

    with recorder.step("Spark's driver"):
        source = DefaultSource({"data": str(folder), "subscribe": _TOPIC})
        reader = source.reader(source.schema())
        tasks = reader.partitions()
    with recorder.step("a task of Spark's"):
        batches = [batch for task in tasks for batch in reader.read(task)]
    assert batches  # noqa: S101 (what is not read was not walked)


def _create(bootstrap: str) -> None:
    topic = CreatableTopic(
        name=_TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    ask(bootstrap, CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))


def _init_producer(bootstrap: str) -> int:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=10_000)
    return ask(bootstrap, INIT_PRODUCER_ID, 4, request).producer_id


def _produce(bootstrap: str, producer_id: int, sequence: int) -> None:
    record = Record(b"key", bytes(_VALUE_BYTES), (), SystemClock().now_ms())
    settings = BatchSettings(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    batch = build([record], settings)
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=_TOPIC, partition_data=[data])
    ask(bootstrap, PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]))


def _fetch(bootstrap: str) -> None:
    part = FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=_TOPIC, partitions=[part])
    request = FetchRequest(max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    ask(bootstrap, FETCH, 12, request)


def read_table(page: Path) -> list[Phase]:
    """Return the phases in the table of a design page."""
    return [
        Phase(name, _NAME.findall(cell), int(total))
        for name, cell, total in _ROW.findall(page.read_text("utf-8"))
    ]


def path_of(file: str) -> Path:
    """Return the path of a file of the table."""
    if file == "pyspark_rookery":
        return _SOURCE / file / "__init__.py"
    path = _SOURCE / "rookery" / file
    return path if path.suffix else path.with_suffix(".py")


def report(phases: list[Phase], steps: dict[str, set[str]]) -> Iterator[str]:
    """Yield the table, then the files that run and are not in it."""
    for name, files, total in phases:
        yield f"{name:2} {len(files):3} {total:4}  {' '.join(files)}"
    listed = {file for phase in phases for file in phase.files}
    for step, ran in steps.items():
        yield f"{step}, not in the table: {' '.join(sorted(ran - listed))}"


def main(page: Path) -> int:
    """Compare the table of a page with the files that run; return 1 if one does not run."""
    phases = read_table(page)
    with TemporaryDirectory() as folder:
        steps = walk(Path(folder) / "data")
    ran = set().union(*steps.values())
    files = [file for phase in phases for file in phase.files]
    idle = [file for file in files if file not in ran and not _SILENT.search(file)]
    lines = [*report(phases, steps), f"in the table, but not run: {' '.join(idle) or 'none'}"]
    sys.stdout.write("\n\n".join(lines) + "\n")
    return 1 if idle else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
