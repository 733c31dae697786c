"""`rookery produce`: sends lines of a file or standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.delivery import DeliveryOptions
from rookery.cli.options.fields import option, part, positional, repeated, switch
from rookery.cli.options.values import count_or_none, setting
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.cli.output.figures import LiveMeter
    from rookery.client.client import Client
    from rookery.client.produce.producer import Producer
    from rookery.records.recordcodec import Record

# After an interrupt, the time left to records that are on their way.
_LAST_CHANCE_MS: Final = 5_000


@dataclass(frozen=True, kw_only=True)
class ProduceLines(CommandArguments):
    """The records to send, and the topic that gets them."""

    topic: str = positional("TOPIC", "the topic")
    file: str = option(
        "-f", "--file", default="-", help="the file to read; `-` is standard input (default)"
    )
    format: str = option(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: each line is a value; json: each line is a record as `rookery consume "
        '--format json` prints it, such as {"key": "corvus", "value": {"id": 1}}; unknown '
        "fields are rejected",
    )
    key_separator: str | None = option(
        "-k",
        "--key-separator",
        metavar="TEXT",
        help="the separator between key and value in a line; \\t is a tab",
    )
    header: tuple[tuple[str, str], ...] = repeated(
        "-H",
        "--header",
        type=setting,
        metavar="NAME=VALUE",
        help="a header for every record; may be repeated",
    )
    partition: int | None = option(
        "-p", "--partition", type=count_or_none, help="the partition (default: chosen by the key)"
    )
    quiet: bool = switch("-q", "--quiet", help="do not print statistics on standard error")
    delivery: DeliveryOptions = part(DeliveryOptions, "sending")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ProduceLines) -> int:
    """Send everything, wait until it is stored, then print how much it was."""
    from rookery.cli.input import open_input
    from rookery.cli.output.figures import LiveMeter
    from rookery.cli.session import run_client

    descriptor = open_input(args.file)
    settings = args.delivery.producer_settings(args.address.timeout_ms)
    meter = LiveMeter("sent", shown=not args.quiet)

    async def work(client: Client) -> None:
        producer = client.producer(settings)
        try:
            await _send_lines(producer, args, descriptor, meter)
        except BaseException:
            await producer.close(_LAST_CHANCE_MS)
            raise
        await producer.close()

    with meter:
        run_client("produce", args.address, work)
    _report(args, meter)
    return 0


async def _send_lines(
    producer: Producer, args: ProduceLines, descriptor: int, meter: LiveMeter
) -> None:
    from rookery.cli.input import lines_of

    read, topic, partition = _reader(args), args.topic, args.partition
    number = 0
    async for lines in lines_of(descriptor):
        for line in lines:
            number += 1
            await producer.send(topic, _read(read, line, number), partition)
            meter.add(len(line))


def _read(read: Callable[[bytes], Record], line: bytes, number: int) -> Record:
    try:
        return read(line)
    except ConfigError as error:
        raise ConfigError(f"line {number}: {error}. {_describe_sent(number - 1)}") from None


def _describe_sent(count: int) -> str:
    if not count:
        return "Nothing was sent"
    return "1 record before it was sent" if count == 1 else f"{count} records before it were sent"


def _reader(args: ProduceLines) -> Callable[[bytes], Record]:
    from rookery.cli.output.lines import from_json, from_text

    headers = tuple((name, value.encode()) for name, value in args.header)
    if args.format == "json":
        return lambda line: _with_headers(from_json(line), headers)
    separator = None if args.key_separator is None else _separator(args.key_separator)
    return lambda line: from_text(line, separator, headers)


def _with_headers(record: Record, headers: tuple[tuple[str, bytes], ...]) -> Record:
    return record._replace(headers=(*record.headers, *headers)) if headers else record


def _separator(text: str) -> bytes:
    return text.replace("\\t", "\t").encode()


def _report(args: ProduceLines, meter: LiveMeter) -> None:
    speed = meter.speed()
    if args.json:
        print_json({"topic": args.topic, **speed.as_json()})
    elif not args.quiet:
        print(f"sent to {args.topic}: {speed.text()}", file=sys.stderr)


COMMAND = Command(
    arguments=ProduceLines,
    run=run,
    summary="Produce a record to a topic from each line of the input.",
    example="rookery produce birds --key-separator : --file sightings.txt\n"
    """  echo '{"key": "k", "value": {"id": 1}}' | rookery produce birds --format json""",
)
