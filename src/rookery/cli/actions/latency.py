"""The way of single records from a sender to a reader, timed."""

from __future__ import annotations

import argparse
import asyncio
from time import perf_counter
from typing import Final

from rookery.cli.actions.connecting import ACKS
from rookery.client.client import Client
from rookery.client.fetch import FetchSettings
from rookery.client.settings import ProducerSettings
from rookery.errors import Unavailable
from rookery.model.partition import TopicPartition
from rookery.records.record import Record

_NUMBER_BYTES: Final = 8
_SOONEST: Final = 0.001


class Pace:
    """Lets so many through in a second; 0 lets all through."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._start = perf_counter()

    async def wait(self, number: int) -> None:
        """Wait until it is this number's turn."""
        if not self._per_second:
            return
        if number == 0:
            self._start = perf_counter()
        early = self._start + number / self._per_second - perf_counter()
        # Shorter waits than a timer can keep are caught up by the next.
        if early > _SOONEST:
            await asyncio.sleep(early)


async def measure_trips(client: Client, args: argparse.Namespace) -> list[float]:
    """Send records at a pace and read them; return each one's time in milliseconds."""
    place = TopicPartition(args.topic, 0)
    position = await client.offsets.end(place)
    sent: list[float] = []
    reader = asyncio.create_task(_read(client, place, position, args, sent))
    settings = ProducerSettings(acks=ACKS[args.acks], linger_ms=0)
    async with client.producer(settings) as producer:
        pace, filling = Pace(args.throughput), bytes(max(0, args.size - _NUMBER_BYTES))
        for number in range(args.warmup + args.records):
            await pace.wait(number)
            sent.append(perf_counter())
            value = number.to_bytes(_NUMBER_BYTES, "big") + filling
            await producer.send(place.topic, Record(None, value), place.partition)
    try:
        async with asyncio.timeout(args.timeout):
            return await reader
    except TimeoutError:
        raise Unavailable(
            f"not all records were read within {args.timeout:g} s of the last being sent"
        ) from None


async def _read(
    client: Client,
    place: TopicPartition,
    position: int,
    args: argparse.Namespace,
    sent: list[float],
) -> list[float]:
    settings, times, total = FetchSettings(), list[float](), args.warmup + args.records
    while len(times) < total:
        fetched = (await client.fetcher.fetch({place: position}, settings))[place]
        now = perf_counter()
        for record in fetched.records():
            number = int.from_bytes((record.value or b"")[:_NUMBER_BYTES], "big")
            times.append((now - sent[number]) * 1000)
        position = fetched.next_offset
    return times[args.warmup :]
