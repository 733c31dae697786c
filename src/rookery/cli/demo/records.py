"""The demo of a broker: produce, kill, restart, read back, and compare."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from rookery.cli.demo.audit import ReceivedRecords, SentRecords, compare
from rookery.cli.demo.childbroker import ChildBroker
from rookery.cli.demo.demofolder import DemoFolder, run_in_folder
from rookery.cli.demo.summary import Crash, Summary
from rookery.cli.output.figures import Speed, size_text
from rookery.cli.output.tables import open_console
from rookery.cli.partitions import ends_of, fetch_all, places_of
from rookery.cli.session import first_of
from rookery.client.client import Client
from rookery.client.fetch import FetchSettings
from rookery.client.produce.partition import partition_of
from rookery.client.produce.producer import Producer
from rookery.client.settings import ClientSettings, ProducerSettings
from rookery.clock import stopwatch
from rookery.errors import Error
from rookery.net.loop import run_loop
from rookery.records.recordcodec import Record

TOPIC: Final = "demo"
PARTITIONS: Final = 4
_BIRDS: Final = (
    b"jackdaw",
    b"rook",
    b"raven",
    b"magpie",
    b"jay",
    b"chough",
    b"crow",
    b"nutcracker",
)
_TEXT: Final = b"was seen in the old oak behind the church, with a twig in its beak, at dusk"
_TICK_SECONDS: Final = 0.25
_KILL_AT: Final = 0.4  # of all records, so that most are sent after the restart
_PATIENCE_MS: Final = 60_000
# A small buffer: most of the sent records are stored when the broker is killed.
_PRODUCER: Final = ProducerSettings(batch_bytes=1 << 18, buffer_bytes=8 << 20)


def run_records_demo(records: int, durability: str, *, as_json: bool) -> int:
    """Run the demo; return 0 if nothing was lost."""
    console = open_console(is_quiet=as_json)

    def run(folder: DemoFolder) -> Summary:
        broker = folder.add(ChildBroker(folder.path, durability))
        return run_loop(RecordsDemo(broker, records, console).run())

    summary = run_in_folder(run)
    summary.show(console, as_json=as_json)
    return 0 if summary.is_sound else 1


class KilledServer(Protocol):
    """A server that is killed and started again while clients write."""

    bootstrap: str
    """The address for clients."""

    async def start(self) -> float:
        """Start it; return how many seconds that took."""

    def kill(self) -> None:
        """End it as a crash would."""

    def stop(self) -> None:
        """Stop it in an orderly way."""


class RecordsDemo:
    """One run, from an empty folder to the comparison."""

    def __init__(self, broker: KilledServer, records: int, console: Console) -> None:
        self._broker = broker
        self._total = records
        self._console = console
        self._sent = [SentRecords() for _ in range(PARTITIONS)]
        self._received = [ReceivedRecords() for _ in range(PARTITIONS)]
        self._bytes = 0
        self._ticks: list[float] = []
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(40),
            TextColumn("{task.completed:>10,.0f} records  {task.fields[rate]}"),
            TimeElapsedColumn(),
            console=console,
        )

    async def run(self) -> Summary:
        """Write, kill, restart, read back; return the results."""
        start_seconds = await self._broker.start()
        self._say(
            f"A broker serves at {self._broker.bootstrap}, {start_seconds:.2f} s after start."
        )
        settings = ClientSettings(bootstrap=self._broker.bootstrap, call_timeout_ms=_PATIENCE_MS)
        async with Client(settings) as client:
            await client.create_topic(TOPIC, partitions=PARTITIONS)
            with self._progress:
                produced, crash = await self._produce(client)
                consumed = await self._consume(client)
        self._broker.stop()
        return Summary(
            produced=produced,
            consumed=consumed,
            crash=crash,
            ticks=self._ticks,
            tick_seconds=_TICK_SECONDS,
            verdicts=[
                compare(number, sent, received)
                for number, (sent, received) in enumerate(
                    zip(self._sent, self._received, strict=True)
                )
            ],
        )

    def _say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    async def _produce(self, client: Client) -> tuple[Speed, Crash]:
        producer = client.producer(_PRODUCER)
        try:
            return await self._send_and_kill(producer)
        except BaseException as error:
            # After a failure or an interrupt, records in flight no longer matter.
            with suppress(Error):
                await producer.close(timeout_ms=1)
            if isinstance(error, BaseExceptionGroup):
                raise first_of(error) from error
            raise

    async def _send_and_kill(self, producer: Producer) -> tuple[Speed, Crash]:
        bar = self._progress.add_task("producing", total=self._total, rate="")
        start, middle = stopwatch(), round(self._total * _KILL_AT)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch(producer, bar))
            await self._send(producer, 0, middle)
            killing = group.create_task(self._kill_and_restart(producer))
            await self._send(producer, middle, self._total)
            await producer.flush()
            speed = Speed(self._total, self._bytes, stopwatch() - start)
            watching.cancel()
        self._show(bar, self._total, speed)
        at_record, down = killing.result()
        return speed, Crash(at_record, down, producer.retried_batches)

    async def _send(self, producer: Producer, first: int, last: int) -> None:
        """Send the records with these numbers, each to the partition of its key."""
        keys = [b"%b-%d" % (bird, number) for bird in _BIRDS for number in range(50)]
        homes = [partition_of(key, PARTITIONS) for key in keys]
        send, sent, count = producer.send, self._sent, len(keys)
        for number in range(first, last):
            index = number * 7919 % count
            partition = homes[index]
            value = sent[partition].value(_TEXT)
            self._bytes += len(value)
            await send(TOPIC, Record(keys[index], value), partition)

    async def _kill_and_restart(self, producer: Producer) -> tuple[int, float]:
        """Kill and restart the broker; return the records stored before, and its down time."""
        stored, start = producer.delivered_records, stopwatch()
        self._broker.kill()
        self._say(
            f"[bold red]kill -9[/bold red] with {stored:,} records acknowledged and "
            f"{size_text(producer.buffered_bytes)} of records in flight …"
        )
        await self._broker.start()
        down = stopwatch() - start
        self._say(f"… it serves again after {down:.2f} s, and the client sends again what it must.")
        return stored, down

    async def _watch(self, producer: Producer, bar: TaskID) -> None:
        """Show the progress, and note the rate of each tick."""
        last_count, last_time = 0, stopwatch()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            count, now = producer.delivered_records, stopwatch()
            rate = (count - last_count) / (now - last_time)
            self._ticks.append(rate)
            self._progress.update(bar, completed=count, rate=f"{rate:>9,.0f} a second")
            last_count, last_time = count, now

    def _show(self, bar: TaskID, records: int, speed: Speed) -> None:
        rate = f"{speed.records_per_second:>9,.0f} a second"
        self._progress.update(bar, completed=records, rate=rate)

    async def _consume(self, client: Client) -> Speed:
        places = await places_of(client, TOPIC)
        ends = await ends_of(client, places)
        bar = self._progress.add_task("reading", total=sum(ends.values()), rate="")
        start, count = stopwatch(), 0
        fetches = fetch_all(client, dict.fromkeys(places, 0), ends, FetchSettings())
        async with aclosing(fetches):
            async for fetched in fetches:
                count += self._received[fetched.place.partition].take(fetched.records())
                self._show(bar, count, self._speed_of_reading(start))
        return self._speed_of_reading(start)

    def _speed_of_reading(self, start: float) -> Speed:
        count = sum(received.count for received in self._received)
        size = sum(received.bytes for received in self._received)
        return Speed(count, size, stopwatch() - start)
