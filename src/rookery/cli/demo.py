"""`rookery demo`: the codec and the record kernels at work, on made-up orders."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from rookery.cli.command import Subparsers, add_command, print_json

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from rookery.records.compression import Codec
    from rookery.wire.message import Message

_CITIES = ("Praha", "Brno", "Plzeň", "Ostrava", "Olomouc", "Liberec", "Zlín", "Opava")
_BATCH_BYTES = 1 << 20


class CodecFigures(NamedTuple):
    """What a compression codec did to the orders."""

    codec: str
    bytes_stored: int
    ratio: float
    write_per_second: int
    read_per_second: int


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "demo",
        run,
        summary="See the wire codec and the record kernels at work.",
        example="rookery demo --records 1000000",
    )
    parser.add_argument("--records", type=int, default=300_000, help="how many orders to make")


def run(args: argparse.Namespace) -> int:
    """Show, or with `--json` tell, what came out."""
    from rich.console import Console  # noqa: PLC0415 (only a command that runs pays for it)

    console = Console(quiet=args.json)
    console.rule("[bold]Rookery[/bold]: one message, four versions")
    _show_versions(console)
    console.rule("messages read and written, one core")
    speeds = _show_speeds(console)
    console.rule(f"{args.records:,} orders as Kafka batches, and as Arrow columns")
    figures, rows = _show_codecs(console, args.records)
    console.rule("read back: revenue by city, straight from the columns")
    revenue = _show_revenue(console, rows)
    if args.json:
        print_json(
            {
                "messages_per_second": speeds,
                "codecs": [entry._asdict() for entry in figures],
                "revenue": revenue,
            }
        )
    return 0


def _show_versions(console: Console) -> None:
    from rookery.wire.codec import encode_bytes  # noqa: PLC0415
    from rookery.wire.messages.heartbeat import HeartbeatRequest  # noqa: PLC0415

    request = HeartbeatRequest(
        group_id="nest", generation_id=7, member_id="jackdaw", group_instance_id="static-1"
    )
    console.print(request)
    for version in (0, 2, 3, 4):
        console.print(f"  v{version}  [cyan]{encode_bytes(request, version).hex(' ')}[/cyan]")


def _show_speeds(console: Console) -> dict[str, int]:
    from rookery.testing.messages import random_message  # noqa: PLC0415
    from rookery.wire.codec import decode, encode, encode_bytes  # noqa: PLC0415
    from rookery.wire.messages.metadata import MetadataResponse  # noqa: PLC0415
    from rookery.wire.messages.produce import ProduceRequest  # noqa: PLC0415

    speeds = {}
    for cls, version in ((ProduceRequest, 11), (MetadataResponse, 12)):
        message: Message = random_message(cls, version, 4)
        wire = encode_bytes(message, version)
        name = f"{cls.__name__} v{version}"
        speeds[f"{name} read"] = _rate(partial(decode, cls, version, wire))
        speeds[f"{name} write"] = _rate(partial(encode, message, version))
    for name, rate in speeds.items():
        console.print(f"  {name:<28} [bold]{rate:>12,}[/bold] a second")
    return speeds


def _rate(function: Callable[[], object], seconds: float = 0.2) -> int:
    count, end = 0, perf_counter() + seconds
    while perf_counter() < end:
        for _ in range(100):
            function()
        count += 100
    return round(count / seconds)


def _orders(count: int) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415

    values = [
        json.dumps(
            {"order": i, "city": _CITIES[i * i % 61 % 8], "amount": i * 37 % 900 + 5}
        ).encode()
        for i in range(count)
    ]
    keys = [b"customer-%d" % (i % 1000) for i in range(count)]
    return pa.record_batch({"key": keys, "value": values})


def _show_codecs(
    console: Console, count: int
) -> tuple[list[CodecFigures], Sequence[pa.RecordBatch]]:
    from rich.progress import track  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from rookery.records.compression import CODECS  # noqa: PLC0415

    orders = _orders(count)
    table = Table("codec", "stored", "ratio", "written, records/s", "read to Arrow, records/s")
    figures: list[CodecFigures] = []
    rows: list[pa.RecordBatch] = []
    for codec in track(list(CODECS.values()), "all codecs", console=console, transient=True):
        entry, rows = _measure(codec, orders)
        figures.append(entry)
        table.add_row(
            entry.codec,
            f"{entry.bytes_stored / 1e6:,.1f} MB",
            f"{entry.ratio:.1f}x",
            f"{entry.write_per_second:,}",
            f"{entry.read_per_second:,}",
        )
    console.print(table)
    return figures, rows


def _measure(codec: Codec, orders: pa.RecordBatch) -> tuple[CodecFigures, list[pa.RecordBatch]]:
    from rookery.records.columns import decode, encode  # noqa: PLC0415
    from rookery.records.reading import Fetched  # noqa: PLC0415
    from rookery.records.writing import Writing  # noqa: PLC0415

    start = perf_counter()
    batches = list(encode(orders, Writing(codec=codec, max_batch_bytes=_BATCH_BYTES)))
    written = perf_counter()
    rows = list(decode(Fetched("orders", 0, batch) for batch in batches))
    read = perf_counter()
    count, stored = orders.num_rows, sum(map(len, batches))
    if sum(part.num_rows for part in rows) != count:
        raise AssertionError("a record was lost between writing and reading")
    plain = sum(column.nbytes for column in orders.columns)
    figures = CodecFigures(
        codec=codec.name,
        bytes_stored=stored,
        ratio=plain / stored,
        write_per_second=round(count / (written - start)),
        read_per_second=round(count / (read - written)),
    )
    return figures, rows


def _show_revenue(console: Console, rows: Iterable[pa.RecordBatch]) -> dict[str, int]:
    revenue: dict[str, int] = dict.fromkeys(_CITIES, 0)
    for part in rows:
        for value in part.column("value").to_pylist():
            order = json.loads(value or b"{}")
            revenue[order["city"]] += order["amount"]
    most = max(revenue.values()) or 1
    for city, amount in sorted(revenue.items(), key=lambda item: -item[1]):
        bar = "█" * round(40 * amount / most)
        console.print(f"  {city:<9} [green]{bar:<40}[/green] {amount:>12,}")
    return revenue
