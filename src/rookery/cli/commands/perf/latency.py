"""`rookery perf latency`: measures the time from sending a record to reading it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.delivery import ACKS
from rookery.cli.options.fields import option, part, positional
from rookery.cli.options.sample import SampleSize
from rookery.cli.options.values import count
from rookery.errors import Unavailable

if TYPE_CHECKING:
    from rookery.cli.output.measurement import Measurement
    from rookery.client.client import Client
    from rookery.model.partition import TopicPartition

_NUMBER_BYTES: Final = 8


@dataclass(frozen=True, kw_only=True)
class MeasureLatency(CommandArguments):
    """The load of the measurement."""

    topic: str = positional("TOPIC", "the topic; created if it does not exist")
    sample: SampleSize = part(SampleSize, records=5_000, warmup=500)
    size: int = option("--size", type=count, default=100, help="the size of a value in bytes")
    throughput: int = option(
        "--throughput",
        type=count,
        default=1_000,
        metavar="N",
        help="the records sent per second (default: %(default)s)",
    )
    acks: str = option(
        "--acks",
        choices=tuple(ACKS),
        default="all",
        help="the replicas that must have a record before it is acknowledged (default: all)",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: MeasureLatency) -> int:
    """Measure how long a record takes from sender to reader."""
    from rookery.cli.session import run_client

    measured = run_client("perf", args.address, lambda client: _measure(client, args))
    measured.show(as_json=args.json)
    return 0


async def _measure(client: Client, args: MeasureLatency) -> Measurement:
    from rookery.cli.output.figures import Speed
    from rookery.cli.output.measurement import Measurement
    from rookery.cli.session import ensure_topic
    from rookery.clock import stopwatch

    await ensure_topic(client, args.topic, 1)
    start = stopwatch()
    times = await _measure_trips(client, args)
    total = args.sample.total
    speed = Speed(total, args.size * total, stopwatch() - start)
    timed = f"sending to reading of {args.sample.records:,} records"
    return Measurement("latency", speed, timed, times)


async def _measure_trips(client: Client, args: MeasureLatency) -> list[float]:
    """Send records at a pace and read them; return each one's time in milliseconds."""
    import asyncio

    from rookery.model.partition import TopicPartition

    place = TopicPartition(args.topic, 0)
    position = await client.offsets.end(place)
    sent: list[float] = []
    reader = asyncio.create_task(_read(client, place, position, args, sent))
    await _send(client, place, args, sent)
    try:
        async with asyncio.timeout(args.address.timeout):
            return await reader
    except TimeoutError:
        raise Unavailable(
            f"not all records were read within {args.address.timeout:g} s of the last being sent"
        ) from None


async def _send(
    client: Client, place: TopicPartition, args: MeasureLatency, sent: list[float]
) -> None:
    from rookery.cli.pace import SendPace
    from rookery.client.settings import ProducerSettings
    from rookery.clock import stopwatch
    from rookery.records.recordcodec import Record

    settings = ProducerSettings(acks=ACKS[args.acks], linger_ms=0)
    async with client.producer(settings) as producer:
        pace, filling = SendPace(args.throughput), bytes(max(0, args.size - _NUMBER_BYTES))
        for number in range(args.sample.total):
            await pace.wait(number)
            sent.append(stopwatch())
            value = number.to_bytes(_NUMBER_BYTES, "big") + filling
            await producer.send(place.topic, Record(None, value), place.partition)


async def _read(
    client: Client, place: TopicPartition, position: int, args: MeasureLatency, sent: list[float]
) -> list[float]:
    from rookery.client.fetch import FetchSettings
    from rookery.clock import stopwatch

    settings, times, total = FetchSettings(), list[float](), args.sample.total
    while len(times) < total:
        fetched = (await client.fetcher.fetch({place: position}, settings))[place]
        now = stopwatch()
        for record in fetched.records():
            number = int.from_bytes((record.value or b"")[:_NUMBER_BYTES], "big")
            times.append((now - sent[number]) * 1000)
        position = fetched.next_offset
    return times[args.sample.warmup :]


COMMAND = Command(
    arguments=MeasureLatency,
    run=run,
    summary="Produce records at a constant rate and measure the latency until each is consumed.",
    example="rookery perf latency birds --records 10k --throughput 1000",
)
