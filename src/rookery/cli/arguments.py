"""Arguments that several commands take: where the cluster is, who we are, and plain values."""

from __future__ import annotations

import argparse
from typing import Final

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_UNITS: Final = {"k": 1_000, "m": 1_000_000, "ki": 1 << 10, "mi": 1 << 20}
_DEFAULT_TIMEOUT: Final = 15.0


def add_connection(parser: argparse.ArgumentParser) -> None:
    """Let a command reach any Kafka, open or secured."""
    group = parser.add_argument_group("connection")
    group.add_argument(
        "-b",
        "--bootstrap",
        default=DEFAULT_BOOTSTRAP,
        metavar="HOST:PORT,…",
        help="one broker or more; the others are found through them (default: %(default)s)",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        default=_DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="how long to try before giving up (default: %(default)g)",
    )
    add_security(group)


def add_security(group: argparse._ArgumentGroup) -> None:
    """Let a command say how a Kafka is spoken to, and who we are to it; no flag has a secret."""
    group.add_argument("--tls", action="store_true", help="speak TLS; the options below imply it")
    group.add_argument("--ca-file", metavar="PEM", help="authorities to trust; else the system's")
    group.add_argument("--cert-file", metavar="PEM", help="our own certificate, if brokers ask")
    group.add_argument("--key-file", metavar="PEM", help="its key, if it is in a file of its own")
    group.add_argument(
        "--no-verify", action="store_true", help="take any certificate: for trials, not for use"
    )
    group.add_argument("--user", metavar="NAME", help="log in with this name (SASL)")
    group.add_argument(
        "--password-file",
        metavar="FILE",
        help="the password, in the first line; without it you are asked",
    )
    group.add_argument(
        "--mechanism",
        default="SCRAM-SHA-512",
        help="PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default: %(default)s)",
    )


def add_producing(parser: argparse.ArgumentParser) -> None:
    """Let a command say how records are sent."""
    group = parser.add_argument_group("sending")
    group.add_argument(
        "-z", "--compression", choices=COMPRESSIONS, default="none", help="default: %(default)s"
    )
    group.add_argument(
        "--acks",
        choices=("0", "1", "all"),
        default="all",
        help="who must have a record before it counts (default: %(default)s)",
    )
    group.add_argument(
        "--no-idempotence",
        action="store_true",
        help="a retry may store records twice; the default with --acks all is that it may not",
    )
    group.add_argument(
        "--linger-ms",
        type=count_or_none,
        default=5,
        metavar="MS",
        help="how long a batch waits for more records (default: %(default)s)",
    )
    group.add_argument(
        "--batch-bytes",
        type=count,
        default=256 * 1024,
        metavar="BYTES",
        help="the size at which a batch goes at once (default: %(default)s)",
    )
    group.add_argument(
        "--max-request-bytes",
        type=count,
        metavar="BYTES",
        help="the largest request, and so the largest record (default: 1Mi, or four batches)",
    )


def add_spark(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Let a command say where Spark runs, and how the tasks there get their Python environment."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", metavar="URL", help="such as spark://head:7077 (default: local[*])"
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of Spark, such as spark.executor.memory=4g; may be repeated",
    )
    environment = group.add_mutually_exclusive_group()
    environment.add_argument(
        "--archive",
        metavar="FILE",
        help="the environment for other hosts, written by `rookery spark pack` "
        "(default: this one, which is packed when it has changed)",
    )
    environment.add_argument(
        "--installed",
        action="store_true",
        help="the hosts have this environment at the same path: send none",
    )
    return group


def count(text: str) -> int:
    """Read a number above 0: `1000`, `10k`, `2M`, `64Ki`."""
    number = count_or_none(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def count_or_none(text: str) -> int:
    """Read a number that may be 0."""
    digits = text.rstrip("kKmMi")
    unit = text[len(digits) :].lower()
    if not digits.isdecimal() or (unit and unit not in _UNITS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number such as 1000, 10k, 2M or 64Ki")
    return int(digits) * _UNITS.get(unit, 1)


def seconds(text: str) -> float:
    """Read a span of time above 0, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def partitions(text: str) -> list[int]:
    """Read partition numbers: `3`, `0,2,5-7`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 15:
            raise argparse.ArgumentTypeError(f"{text!r} names no partitions; try 3 or 0,2,5-7")
        numbers.extend(range(int(first), int(last or first) + 1))
    return sorted(set(numbers))


def setting(text: str) -> tuple[str, str]:
    """Read `name=value`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form name=value")
    return name, value
