"""`rookery perf produce`: measures how fast records are produced, and acknowledgement times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.delivery import DeliveryOptions
from rookery.cli.options.fields import option, part, positional
from rookery.cli.options.sample import SampleSize
from rookery.cli.options.values import count, count_or_none

if TYPE_CHECKING:
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.output.measurement import Measurement
    from rookery.client.client import Client
    from rookery.client.produce.producer import Producer
    from rookery.client.produce.producerbatch import Delivery

# Waiting for each of a million records would measure the waiting.
_SAMPLES: Final = 20_000


@dataclass(frozen=True, kw_only=True)
class MeasureProduce(CommandArguments):
    """The load of the measurement."""

    topic: str = positional("TOPIC", "the topic; created if it does not exist")
    sample: SampleSize = part(SampleSize, warmup=10_000)
    size: int = option("--size", type=count, default=100, help="the size of a value in bytes")
    throughput: int = option(
        "--throughput",
        type=count_or_none,
        default=0,
        metavar="N",
        help="the maximum records per second; 0 (default): no limit",
    )
    partitions: int = option(
        "--partitions",
        type=count,
        default=4,
        help="the number of partitions if the topic is created",
    )
    delivery: DeliveryOptions = part(DeliveryOptions, "sending")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: MeasureProduce) -> int:
    """Measure how fast records are taken."""
    from rookery.cli.session import run_client

    measured = run_client("perf", args.address, lambda client: _measure(client, args))
    measured.show(as_json=args.json)
    return 0


async def _measure(client: Client, args: MeasureProduce) -> Measurement:
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.output.measurement import Measurement
    from rookery.cli.session import ensure_topic

    settings = args.delivery.producer_settings(args.address.timeout_ms)
    await ensure_topic(client, args.topic, args.partitions)
    async with client.producer(settings) as producer:
        await _Load(producer, args).run(args.sample.warmup)
        await producer.flush()
        with LiveMeter("sent", shown=not args.json) as meter:
            load = _Load(producer, args, meter)
            await load.run(args.sample.records)
            await producer.flush()
            speed = meter.speed()
    timed = f"sending to acknowledgement of {len(load.times):,} records"
    return Measurement("produce", speed, timed, load.times)


class _Load:
    """Sends records, at a pace or as fast as it goes, and times some of them."""

    def __init__(
        self, producer: Producer, args: MeasureProduce, meter: LiveMeter | None = None
    ) -> None:
        from rookery.cli.pace import SendPace
        from rookery.clock import stopwatch

        self._stopwatch = stopwatch
        self._producer = producer
        self._topic = args.topic
        self._size = args.size
        self._pace = SendPace(args.throughput)
        self._meter = meter
        self.times: list[float] = []

    async def run(self, count: int) -> None:
        import asyncio

        from rookery.records.recordcodec import Record

        send, topic, meter = self._producer.send, self._topic, self._meter
        step = max(1, count // _SAMPLES)
        async with asyncio.TaskGroup() as group:
            for number, value in enumerate(_values(count, self._size)):
                await self._pace.wait(number)
                start = self._stopwatch()
                delivery = await send(topic, Record(None, value))
                if meter is not None:
                    meter.add(self._size)
                    if number % step == 0:
                        group.create_task(self._time(delivery, start))

    async def _time(self, delivery: Delivery, start: float) -> None:
        await delivery.wait()
        self.times.append((self._stopwatch() - start) * 1000)


def _values(count: int, size: int) -> Iterator[bytes]:
    """Make values that differ and do not compress to nothing."""
    text = b"".join(b"%x" % (number * 2_654_435_761 % 2**32) for number in range(size // 4 + 2))
    for number in range(count):
        yield (b"%d " % number + text)[:size]


COMMAND = Command(
    arguments=MeasureProduce,
    run=run,
    summary="Produce records and measure the latency until each is acknowledged.",
    example="rookery perf produce birds --records 1M --size 1000 --compression lz4",
)
