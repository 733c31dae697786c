"""`rookery perf`: how fast a cluster takes records, gives them back, and hands them on."""

from __future__ import annotations

import argparse

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "perf",
        summary="Measure producing, consuming and end-to-end latency on any Kafka.",
        example="rookery perf produce birds --records 1M --size 100",
    )
    for add_one in (_add_produce, _add_consume, _add_latency):
        parser = add_one(nest)
        parser.add_argument("topic", metavar="TOPIC", help="created if it is not there")
        arguments.add_connection(parser)


def _add_produce(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "produce",
        action("perf", "measure_produce"),
        summary="Send records of one size; time each from sending to acknowledgement.",
        example="rookery perf produce birds --records 1M --size 1000 --compression lz4",
    )
    _add_load(parser, records=1_000_000, warmup=10_000)
    parser.add_argument("--size", type=arguments.count, default=100, help="bytes of a value")
    parser.add_argument(
        "--throughput",
        type=arguments.count_or_none,
        default=0,
        metavar="N",
        help="records a second at most; 0: as fast as it goes (default)",
    )
    parser.add_argument(
        "--partitions", type=arguments.count, default=4, help="of a topic that is created"
    )
    arguments.add_producing(parser)
    return parser


def _add_consume(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "consume",
        action("perf", "measure_consume"),
        summary="Read records from the beginning of a topic, and time the fetches.",
        example="rookery perf consume birds --records 1M",
    )
    _add_load(parser, records=1_000_000, warmup=0)
    parser.add_argument(
        "--max-bytes", type=arguments.count, default=1 << 20, help="of a partition in one fetch"
    )
    return parser


def _add_latency(nest: Subparsers) -> argparse.ArgumentParser:
    parser = add_nested(
        nest,
        "latency",
        action("perf", "measure_latency"),
        summary="Send records at an even pace; time each from sending to its reading.",
        example="rookery perf latency birds --records 10k --throughput 1000",
    )
    _add_load(parser, records=5_000, warmup=500)
    parser.add_argument("--size", type=arguments.count, default=100, help="bytes of a value")
    parser.add_argument(
        "--throughput",
        type=arguments.count,
        default=1_000,
        metavar="N",
        help="records a second (default: %(default)s)",
    )
    parser.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="which replicas must have a record before it counts (default: all)",
    )
    return parser


def _add_load(parser: argparse.ArgumentParser, *, records: int, warmup: int) -> None:
    parser.add_argument(
        "--records",
        type=arguments.count,
        default=records,
        metavar="N",
        help="how many; 10k and 1M will do (default: %(default)s)",
    )
    parser.add_argument(
        "--warmup",
        type=arguments.count_or_none,
        default=warmup,
        metavar="N",
        help="records before these that do not count (default: %(default)s)",
    )
