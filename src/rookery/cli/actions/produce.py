"""The work of `rookery produce`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from rookery.cli.actions.connecting import producer_settings, run_client
from rookery.cli.actions.figures import Meter
from rookery.cli.actions.input import lines_of, open_input
from rookery.cli.actions.lines import from_json, from_text
from rookery.cli.command import print_json
from rookery.client.client import Client
from rookery.client.produce import Producer
from rookery.errors import ConfigError
from rookery.records.record import Record

# What an interrupt leaves for records that are on their way.
_LAST_CHANCE_MS = 5_000


def produce(args: argparse.Namespace) -> int:
    """Send all lines as records; return the exit code."""
    descriptor, settings = open_input(args.file), producer_settings(args)
    meter = Meter("sent", shown=not args.quiet)

    async def work(client: Client) -> None:
        producer = client.producer(settings)
        try:
            await _send_lines(producer, args, descriptor, meter)
        except BaseException:
            await producer.close(_LAST_CHANCE_MS)
            raise
        await producer.close()

    with meter:
        run_client(args, work)
    _report(args, meter)
    return 0


async def _send_lines(
    producer: Producer, args: argparse.Namespace, descriptor: int, meter: Meter
) -> None:
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
        raise ConfigError(f"line {number}: {error}. {_sent(number - 1)}") from None


def _sent(count: int) -> str:
    if not count:
        return "Nothing was sent"
    return "1 record before it was sent" if count == 1 else f"{count} records before it were sent"


def _reader(args: argparse.Namespace) -> Callable[[bytes], Record]:
    headers = tuple((name, value.encode()) for name, value in args.header)
    if args.format == "json":
        return lambda line: _with_headers(from_json(line), headers)
    separator = None if args.key_separator is None else _separator(args.key_separator)
    return lambda line: from_text(line, separator, headers)


def _with_headers(record: Record, headers: tuple[tuple[str, bytes], ...]) -> Record:
    return record._replace(headers=(*record.headers, *headers)) if headers else record


def _separator(text: str) -> bytes:
    return text.replace("\\t", "\t").encode()


def _report(args: argparse.Namespace, meter: Meter) -> None:
    speed = meter.speed()
    if args.json:
        print_json({"topic": args.topic, **speed.as_json()})
    elif not args.quiet:
        print(f"sent to {args.topic}: {speed.text()}", file=sys.stderr)
