"""`rookery perf consume`: measures how fast a topic is read from its beginning."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional
from rookery.cli.options.sample import SampleSize
from rookery.cli.options.values import count
from rookery.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from rookery.cli.output.figures import LiveMeter, Speed
    from rookery.cli.output.measurement import Measurement
    from rookery.client.client import Client


@dataclass(frozen=True, kw_only=True)
class MeasureConsume(CommandArguments):
    """The records to read and measure."""

    topic: str = positional("TOPIC", "the topic; created if it does not exist")
    sample: SampleSize = part(SampleSize)
    max_bytes: int = option(
        "--max-bytes",
        type=count,
        default=1 << 20,
        help="the maximum bytes of a partition in one fetch (default: 1Mi)",
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: MeasureConsume) -> int:
    """Measure how fast records are read."""
    from rookery.cli.session import run_client

    measured = run_client("perf", args.address, lambda client: _measure(client, args))
    measured.show(as_json=args.json)
    return 0


async def _measure(client: Client, args: MeasureConsume) -> Measurement:
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.output.measurement import Measurement
    from rookery.cli.partitions import ends_of, fetch_all, places_of
    from rookery.client.fetch import FetchSettings
    from rookery.model.offset import EARLIEST

    settings = FetchSettings(partition_max_bytes=args.max_bytes)
    places = await places_of(client, args.topic)
    starts = await client.offsets.find(dict.fromkeys(places, EARLIEST))
    positions = {place: row.offset for place, row in starts.items()}
    batches = fetch_all(client, positions, await ends_of(client, places), settings)
    with LiveMeter("read", shown=not args.json) as meter:
        tally = _Tally(args.sample.warmup, args.sample.records, meter)
        async with aclosing(batches):
            async for fetched in batches:
                tally.count([len(record.value or b"") for record in fetched.records()])
                if tally.is_done:
                    break
    _check_enough(tally, args)
    return Measurement("consume", tally.speed(), "from one fetched part to the next", tally.times)


class _Tally:
    """Counts the records read, except the first ones."""

    def __init__(self, warmup: int, wanted: int, meter: LiveMeter) -> None:
        from rookery.clock import stopwatch

        self._stopwatch = stopwatch
        self._warmup = warmup
        self._wanted = wanted
        self._meter = meter
        self.seen = 0
        self.times: list[float] = []
        self._start = self._last = stopwatch()
        self._records = 0
        self._bytes = 0

    def count(self, sizes: list[int]) -> None:
        now = self._stopwatch()
        self._meter.add(sum(sizes), len(sizes))
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
        from rookery.cli.output.figures import Speed

        return Speed(self._records, self._bytes, self._last - self._start)


def _check_enough(tally: _Tally, args: MeasureConsume) -> None:
    if tally.seen <= args.sample.warmup:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"topic {args.topic!r} holds {tally.seen} records, no more than the --warmup; "
            f"`rookery perf produce {args.topic}` makes some",
        )


COMMAND = Command(
    arguments=MeasureConsume,
    run=run,
    summary="Consume a topic from its beginning and measure the fetches.",
    example="rookery perf consume birds --records 1M",
)
