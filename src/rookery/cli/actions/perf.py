"""The work of `rookery perf`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from rookery.cli.actions.connecting import producer_settings, run_client
from rookery.cli.actions.figures import Meter, Speed, quantiles
from rookery.cli.actions.latency import Pace, measure_trips
from rookery.cli.actions.named import is_done
from rookery.cli.actions.reading import ends_of, fetch_all, places_of
from rookery.cli.actions.tables import open_console
from rookery.cli.command import print_json
from rookery.client.admin import NewTopic
from rookery.client.batching import Delivery
from rookery.client.client import Client
from rookery.client.fetch import FetchSettings
from rookery.client.produce import Producer
from rookery.errors import ApiError, ErrorCode
from rookery.model.offset import EARLIEST
from rookery.records.record import Record

# Waiting for each of a million records would measure the waiting.
_SAMPLES: Final = 20_000


@dataclass(slots=True)
class Result:
    """What a measurement found; times are in milliseconds."""

    what: str
    speed: Speed
    timed: str
    """What the times are of."""
    times: list[float] = field(default_factory=list)

    def show(self, *, as_json: bool) -> None:
        """Print it."""
        found = quantiles(self.times)
        if as_json:
            times = {name: round(value, 3) for name, value in found.items()}
            print_json({"measured": self.what, **self.speed.as_json(), "latency_ms": times})
            return
        console = open_console(highlight=False)
        console.print(f"[bold]{self.what}[/bold]  {self.speed.text()}")
        figures = "  ".join(f"{name} [bold]{value:,.2f}[/bold]" for name, value in found.items())
        console.print(f"  {self.timed}, in ms: {figures or 'none was timed'}")


def measure_produce(args: argparse.Namespace) -> int:
    """Measure how fast records are taken."""
    settings = producer_settings(args)

    async def work(client: Client) -> Result:
        await _ensure_topic(client, args.topic, args.partitions)
        async with client.producer(settings) as producer:
            await _Sending(producer, args).run(args.warmup)
            await producer.flush()
            with Meter("sent", shown=not args.json) as meter:
                sending = _Sending(producer, args, meter)
                await sending.run(args.records)
                await producer.flush()
                speed = meter.speed()
        timed = f"sending to acknowledgement of {len(sending.times):,} records"
        return Result("produce", speed, timed, sending.times)

    run_client(args, work).show(as_json=args.json)
    return 0


class _Sending:
    """Sends records, at a pace or as fast as it goes, and times some of them."""

    def __init__(
        self, producer: Producer, args: argparse.Namespace, meter: Meter | None = None
    ) -> None:
        self._producer = producer
        self._topic = args.topic
        self._size = args.size
        self._pace = Pace(args.throughput)
        self._meter = meter
        self.times: list[float] = []

    async def run(self, count: int) -> None:
        send, topic, meter = self._producer.send, self._topic, self._meter
        step = max(1, count // _SAMPLES)
        async with asyncio.TaskGroup() as group:
            for number, value in enumerate(_values(count, self._size)):
                await self._pace.wait(number)
                start = perf_counter()
                delivery = await send(topic, Record(None, value))
                if meter is not None:
                    meter.add(self._size)
                    if number % step == 0:
                        group.create_task(self._time(delivery, start))

    async def _time(self, delivery: Delivery, start: float) -> None:
        await delivery.wait()
        self.times.append((perf_counter() - start) * 1000)


def _values(count: int, size: int) -> Iterator[bytes]:
    """Make values that differ and do not compress to nothing."""
    text = b"".join(b"%x" % (number * 2_654_435_761 % 2**32) for number in range(size // 4 + 2))
    for number in range(count):
        yield (b"%d " % number + text)[:size]


def measure_consume(args: argparse.Namespace) -> int:
    """Measure how fast records are read."""
    settings = FetchSettings(partition_max_bytes=args.max_bytes)

    async def work(client: Client) -> Result:
        places = await places_of(client, args.topic, None)
        starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
        positions = {place: row.offset for place, row in starts.items()}
        found = fetch_all(client, positions, await ends_of(client, places), settings)
        reading = _Reading(args.warmup, args.records)
        async with aclosing(found):
            with Meter("read", shown=not args.json) as reading.meter:
                async for fetched in found:
                    reading.count([len(one.value or b"") for one in fetched.records()])
                    if reading.is_done:
                        break
        _check_enough(reading, args)
        return Result(
            "consume", reading.speed(), "from one fetched part to the next", reading.times
        )

    run_client(args, work).show(as_json=args.json)
    return 0


class _Reading:
    """Counts what is read; the first records are not counted."""

    def __init__(self, warmup: int, wanted: int) -> None:
        self._warmup = warmup
        self._wanted = wanted
        self.meter = Meter("read")
        self.seen = 0
        self.times: list[float] = []
        self._start = self._last = perf_counter()
        self._records = 0
        self._bytes = 0

    def count(self, sizes: list[int]) -> None:
        now = perf_counter()
        self.meter.add(sum(sizes), len(sizes))
        if self.seen >= self._warmup:
            self._records += len(sizes)
            self._bytes += sum(sizes)
            self.times.append((now - self._last) * 1000)
        else:
            self._start = now
        self.seen += len(sizes)
        self._last = now

    @property
    def is_done(self) -> bool:
        return self._records >= self._wanted

    def speed(self) -> Speed:
        return Speed(self._records, self._bytes, self._last - self._start)


def _check_enough(reading: _Reading, args: argparse.Namespace) -> None:
    if reading.seen <= args.warmup:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"topic {args.topic!r} holds {reading.seen} records, no more than the --warmup; "
            f"`rookery perf produce {args.topic}` makes some",
        )


def measure_latency(args: argparse.Namespace) -> int:
    """Measure how long a record takes from sender to reader."""

    async def work(client: Client) -> Result:
        await _ensure_topic(client, args.topic, 1)
        start = perf_counter()
        times = await measure_trips(client, args)
        size = args.size * (args.records + args.warmup)
        speed = Speed(args.records + args.warmup, size, perf_counter() - start)
        timed = f"sending to reading of {args.records:,} records"
        return Result("latency", speed, timed, times)

    run_client(args, work).show(as_json=args.json)
    return 0


async def _ensure_topic(client: Client, name: str, partitions: int) -> None:
    topic = NewTopic(name=name, partitions=partitions)
    await is_done(client.admin.create_topics([topic]), ErrorCode.TOPIC_ALREADY_EXISTS)
