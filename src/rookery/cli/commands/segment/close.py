"""`rookery segment close`: builds segments now from what a topic contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import part, positional, repeated
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.cluster.state.partition import Partition
    from rookery.cluster.state.topics import Topic
    from rookery.direct.log import DirectLog
    from rookery.log.maintain.rewriter import Rewriter

# How often a plan is repeated if a producer adds to its rows in the meantime.
_TRIES: Final = 3


@dataclass(frozen=True, kw_only=True)
class CloseSegments(CommandArguments):
    """The partitions whose segments to close."""

    topic: str = positional("TOPIC", "the topic")
    partition: tuple[int, ...] = repeated(
        "--partition",
        type=int,
        metavar="N",
        help="process only this partition; may be repeated (default: all)",
    )
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)


@dataclass(slots=True)
class ClosedSegment:
    """A segment that was built."""

    base_offset: int
    end_offset: int
    bytes: int
    key: str


@dataclass(slots=True)
class ClosedPartition:
    """The outcome for one partition."""

    topic: str
    partition: int
    segments: list[ClosedSegment] = field(default_factory=list)
    open_from: int | None = None
    """The first offset that is in no segment; None if there is none."""
    reason: str = ""
    """Why the remaining batches are in no segment."""

    def as_text(self) -> str:
        """Describe it in a few lines."""
        name = f"{self.topic}-{self.partition}"
        lines = [
            f"{name}: offsets {segment.base_offset} to {segment.end_offset - 1}, "
            f"{segment.bytes:,} bytes: {segment.key}"
            for segment in self.segments
        ]
        if self.open_from is not None:
            lines.append(f"{name}: in no segment from offset {self.open_from} on: {self.reason}")
        return "\n".join(lines or [f"{name}: nothing to close"])


def run(args: CloseSegments) -> int:
    """Make segments; return 1 if a partition still has batches in none."""
    from rookery.net.loop import run_loop

    closed = run_loop(_close(args.log.load_settings(), args.topic, args.partition))
    if args.json:
        print_json([asdict(partition) for partition in closed])
    else:
        for partition in closed:
            print(partition.as_text())
    return 1 if any(partition.open_from is not None for partition in closed) else 0


async def _close(
    settings: BrokerSettings, name: str, partitions: Sequence[int]
) -> list[ClosedPartition]:
    from rookery.direct.log import DirectLog
    from rookery.direct.place import ClusterAddress
    from rookery.log.maintain.rewriter import Rewriter

    place = ClusterAddress(
        store=settings.store,
        cluster=settings.cluster,
        namespace=settings.namespace,
        data="" if settings.store else settings.data,
    )
    async with DirectLog.open(place, "segment-close") as log:
        topic = log.state.topics.by_name.get(name)
        if topic is None:
            raise ConfigError(f"there is no topic {name!r} in this cluster")
        for index in partitions:
            if not 0 <= index < len(topic.partitions):
                count = len(topic.partitions)
                raise ConfigError(f"topic {name} has no partition {index}; it has {count}")
        rewriter = Rewriter(
            replica=log.replica,
            read=log.read,
            store=log.store,
            clock=log.clock,
            next_id=await log.numbers(),
            namespace=log.namespace,
            settings=settings.rewrite,
        )
        chosen = sorted(set(partitions)) or range(len(topic.partitions))
        return [await _close_one(log, rewriter, topic.id, index) for index in chosen]


async def _close_one(
    log: DirectLog, rewriter: Rewriter, topic_id: bytes, index: int
) -> ClosedPartition:
    from rookery.log.maintain.census import loose_runs
    from rookery.log.maintain.plan import plan_closing

    closed = ClosedPartition("", index)
    for _ in range(_TRIES):
        topic, partition = await _find(log, topic_id, index)
        closed.topic = topic.name
        jobs = plan_closing(topic, partition, rewriter.settings)
        for job in jobs:
            if await rewriter.rewrite(job):
                closed.segments.append(_describe_segment(log, partition, job.range.base_offset))
        if not jobs or rewriter.damage:
            break
    topic, partition = await _find(log, topic_id, index)
    rest = next(loose_runs(partition), None)
    if rest is not None:
        closed.open_from = partition.base_offsets[rest.start]
        closed.reason = _reason(rewriter, partition, closed.open_from)
    return closed


async def _find(log: DirectLog, topic_id: bytes, index: int) -> tuple[Topic, Partition]:
    state = await log.barrier()
    partition = state.topics.partition(topic_id, index)
    if partition is None:
        raise ConfigError("the topic was deleted meanwhile")
    return state.topics.by_id[topic_id], partition


def _describe_segment(log: DirectLog, partition: Partition, base_offset: int) -> ClosedSegment:
    from rookery.log.read.objects import key_of
    from rookery.store.wrappers import full_key

    row = partition.row(partition.row_of(base_offset))
    key = full_key(log.namespace, key_of(log.state, log.namespace, row.object_id))
    return ClosedSegment(row.base_offset, row.end_offset, row.size, key)


def _reason(rewriter: Rewriter, partition: Partition, offset: int) -> str:
    if problems := rewriter.quarantine.report():
        return problems[0]
    if partition.last_stable_offset <= offset:
        return "a transaction is open there"
    return "producers write to it, try again"


COMMAND = Command(
    arguments=CloseSegments,
    run=run,
    summary="Build segments from a topic's data now, before the caretaker does.",
    example="rookery segment close orders --partition 0 --data ./rookery-data",
)
