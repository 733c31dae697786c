"""`rookery job`: upkeep of a log on Spark, and records moved in bulk."""

from __future__ import annotations

import argparse
import re
from typing import Final

from rookery.cli.arguments import add_security, add_spark
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested
from rookery.cli.storing import add_storage

_SIZE: Final = re.compile(r"(\d+)\s*([kMGT]?)(i?)B?")
_POWERS: Final = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4}
_SLICE: Final = 512 * 1024 * 1024
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "job",
        summary="Compact, merge, check, expire, repartition, copy, import or replay, on Spark.",
        example="rookery job compact orders --store s3://bucket/log --dry-run",
    )
    _add_upkeep(nest)
    _add_repartition(nest)
    _add_replay(nest)
    _add_copy(nest)
    _add_import(nest)


def size(text: str) -> int:
    """Read a number of bytes such as 500MB, 10GiB or 4096."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 500MB or 10GiB")
    number, unit, binary = found.groups()
    return int(number) * int((1024 if binary else 1000) ** _POWERS[unit])


def _add_upkeep(nest: Subparsers) -> None:
    words = {
        "compact": "Keep the last record of every key, in topics that are compacted.",
        "merge": "Merge small objects into larger ones, and those into segments.",
        "expire": "Let go of records beyond their topic's retention.",
    }
    for name, summary in words.items():
        parser = _add(nest, name, summary, f"rookery job {name} --store s3://bucket/log")
        parser.add_argument("topics", nargs="*", metavar="TOPIC", help="which (default: all)")
    parser = _add(
        nest,
        "scrub",
        "Read everything, and check it by its checksums; goes on where the last run stopped.",
        "rookery job scrub --store s3://bucket/log --max-bytes 100GB",
    )
    parser.add_argument("--restart", action="store_true", help="begin with the first object")


def _add_repartition(nest: Subparsers) -> None:
    parser = _add(
        nest,
        "repartition",
        "Fill a new topic with a topic's records, with another number of partitions, by key.",
        "rookery job repartition orders --to orders-24 --partitions 24 --offset-map ./map",
    )
    parser.add_argument("topic", metavar="TOPIC", help="whose records")
    _add_target(parser, "NEW.offsets; none makes none")
    parser.add_argument(
        "--partitions", type=int, required=True, metavar="N", help="how many the new topic has"
    )


def _add_replay(nest: Subparsers) -> None:
    parser = _add(
        nest,
        "replay",
        "Write the records of many topics into a new one, in the order of time.",
        "rookery job replay clicks orders --to all-in-order",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="of one time, the first first")
    _add_target(parser)
    parser.add_argument(
        "--partitions", type=int, default=1, metavar="N",
        help="of the new topic; with more than one, each is in order (default: %(default)s)",
    )  # fmt: skip


def _add_target(parser: argparse.ArgumentParser, shown: str = "none") -> None:
    parser.add_argument("--to", required=True, metavar="NEW", help="the new topic")
    _add_writing(parser)
    _add_map(parser, shown)


def _add_copy(nest: Subparsers) -> None:
    parser = _add(
        nest,
        "copy",
        "Copy topics into another cluster, of ours or of Kafka's.",
        "rookery job copy orders --store s3://a/log --to-store s3://b/log\n"
        "  rookery job copy orders --store s3://a/log --to-kafka 10.0.0.9:9092 --tls --user copier",
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC", help="which")
    group = parser.add_argument_group("where to")
    group.add_argument("--to-store", default="", metavar="URL", help="the other cluster's store")
    group.add_argument(
        "--to-cluster", default="", metavar="URL", help="its cluster log, or its configured name"
    )
    group.add_argument("--to-namespace", default="default", metavar="NAME", help="its namespace")
    group.add_argument("--to-data", default="", metavar="FOLDER", help="its folder on this host")
    group.add_argument("--to-kafka", default="", metavar="HOST:PORT", help="a Kafka's brokers")
    group.add_argument(
        "--at-least-once",
        action="store_true",
        help="to a Kafka that has no transactions: records may be there twice after a failure",
    )
    add_security(parser.add_argument_group("how the Kafka is reached"))
    parser.add_argument("--prefix", default="", metavar="TEXT", help="before the copies' names")
    parser.add_argument("--name", default="", metavar="TEXT", help="of the job")
    _add_writing(parser)
    _add_map(parser)


def _add_import(nest: Subparsers) -> None:
    parser = _add(
        nest,
        "import",
        "Write the rows of Parquet files or JSON lines into a topic.",
        "rookery job import ./events --format json --topic events --key user_id",
    )
    parser.add_argument("path", metavar="PATH", help="a file, a folder or a pattern")
    parser.add_argument("--topic", required=True, metavar="TOPIC", help="where to")
    parser.add_argument(
        "--format", choices=("parquet", "json"), default="parquet", help="(default: %(default)s)"
    )
    parser.add_argument("--key", default="", metavar="COLUMN", help="the key")
    parser.add_argument("--value", default="", metavar="COLUMN", help="the value (default: all)")
    parser.add_argument("--timestamp", default="", metavar="COLUMN", help="the time")
    parser.add_argument(
        "--create-partitions", type=int, default=0, metavar="N",
        help="make the topic, with so many, if it is not there",
    )  # fmt: skip
    parser.add_argument("--name", default="", metavar="TEXT", help="of the job")
    _add_writing(parser)


def _add_writing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--compression", choices=_CODECS, default="none", help="of batches (default: %(default)s)"
    )
    parser.add_argument(
        "--slice-bytes", type=size, default=_SLICE, metavar="SIZE",
        help="what is committed at once (default: 512MiB)",
    )  # fmt: skip


def _add_map(parser: argparse.ArgumentParser, shown: str = "none") -> None:
    parser.add_argument(
        "--offset-map", default="", metavar="FOLDER",
        help="a folder, or a URL of one, for Parquet files with the old and new offsets "
        f"(default: {shown})",
    )  # fmt: skip


def _add(nest: Subparsers, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    run = action("job", "run")
    parser = add_nested(nest, name, run, summary=summary, example=example)
    parser.set_defaults(job=name)
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and stop")
    parser.add_argument(
        "--max-bytes", type=size, default=0, metavar="SIZE", help="read no more than this, as 10GB"
    )
    parser.add_argument(
        "--no-proof", action="store_true", help="do not read and compare what was there before"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    spark = add_spark(parser)
    spark.add_argument("--remote", metavar="URL", help="a Connect server, such as sc://host")
    add_storage(parser)
    return parser
