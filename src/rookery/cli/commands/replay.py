"""`rookery replay`: topics as one stream in the order of time, to the terminal or to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, repeated, switch
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress
from rookery.cli.options.values import count, seconds
from rookery.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from rookery.cli.output.rows import RowWriter
    from rookery.consumer.api import Cluster
    from rookery.consumer.positions import Position
    from rookery.consumer.settings import DecoderSpec, StreamOptions

_WORDS: Final[Mapping[str, Position]] = {
    "beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest",
    "now": "now", "committed": "committed",
}  # fmt: skip
_SAMPLE_ROWS: Final = 1_000
_WHERE: Final = (
    "a time such as 2026-01-31T12:00:00Z, or a span back from now such as 30s, 15m, 2h, 7d"
)


@dataclass(frozen=True, kw_only=True)
class ReplayRange:
    """Which rows."""

    start: str = option(
        "--from",
        default="beginning",
        metavar="WHERE",
        help=f"beginning (default), end, committed (by --group), {_WHERE}",
    )
    end: str = option(
        "--to",
        default="now",
        metavar="WHERE",
        help=f"now (default: where the partitions end at the start), {_WHERE}",
    )
    follow: bool = switch("-F", "--follow", help="then wait for rows to come")
    group: str | None = option(
        "--group", metavar="NAME", help="whose committed offsets; none are written"
    )
    max: int | None = option("-n", "--max", type=count, metavar="N", help="stop after N rows")
    uncommitted: bool = switch("--uncommitted", help="also open and aborted transactions")


@dataclass(frozen=True, kw_only=True)
class ReplayOrder:
    """In which order, and how fast."""

    event_time: str = option(
        "--event-time",
        default="record",
        metavar="WHERE",
        help="record (default), header:NAME, or a field such as value.created_at",
    )
    lateness: float | None = option(
        "--lateness",
        type=seconds,
        metavar="SECONDS",
        help="how much disorder inside a partition is put right",
    )
    late: str = option(
        "--late", choices=("flag", "drop", "raise"), default="flag", help="default: %(default)s"
    )
    speed: float | None = option(
        "--speed",
        type=seconds,
        metavar="TIMES",
        help="as fast as it was written, times this; default: as fast as possible",
    )
    memory: int = option(
        "--memory",
        type=count,
        default=256 << 20,
        metavar="BYTES",
        help="the most that is held, such as 64Mi (default: 256Mi)",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayForm:
    """How values are read, and what is written."""

    decode: tuple[str, ...] = repeated(
        "--decode",
        metavar="[TOPIC=]NAME",
        help="how values are read: raw, utf8 (default), json, avro, protobuf, arrow; for all "
        "topics or for one",
    )
    schema: tuple[str, ...] = repeated(
        "--schema",
        metavar="[TOPIC=]TEXT",
        help="their fields, such as 'id long, name string'; JSON without it is looked at first",
    )
    registry: str | None = option(
        "--registry", metavar="URL", help="the schema registry, for Avro, Protobuf"
    )
    format: str = option(
        "--format",
        choices=("table", "json", "arrow", "parquet"),
        default="table",
        help="table: for people; json: a line each; arrow: an IPC stream; parquet: a file",
    )
    output: str | None = option(
        "-o", "--output", metavar="FILE", help="where to; default: the terminal"
    )
    quiet: bool = switch("-q", "--quiet", help="show no progress")


@dataclass(frozen=True, kw_only=True)
class ReplayTopics(CommandArguments):
    """The records to read, their order, and the form of the output."""

    topics: tuple[str, ...] = positional(
        "TOPIC", "of equal times, the first named comes first", nargs="+"
    )
    rows: ReplayRange = part(ReplayRange, "what to read")
    order: ReplayOrder = part(ReplayOrder, "order")
    form: ReplayForm = part(ReplayForm, "what to make of it")
    address: ClusterOptions = part(ClusterOptions, "connection")
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)


def run(args: ReplayTopics) -> int:
    """Write what topics hold, in the order of time."""
    from rookery.cli.output.rows import open_sink
    from rookery.consumer.api import replay

    cluster = _cluster(args)
    start, end = _position("--from", args.rows.start), _position("--to", args.rows.end)
    form = "json" if args.json and args.form.format == "table" else args.form.format
    options = _options(args)
    options["value"] = _decoders(args, cluster, start, options)
    options["progress"] = not args.form.quiet and sys.stderr.isatty()
    then: Any = "live" if args.rows.follow else "stop"
    with (
        open_sink(form, args.form.output) as sink,
        replay(cluster, args.topics, start=start, end=end, then=then, **options) as stream,
    ):
        for batch in stream:
            sink.write(batch.data)
        sink.end(stream.schema)
    _report(args, sink)
    return 0


def _report(args: ReplayTopics, sink: RowWriter) -> None:
    # With --json and the rows in a file, standard output gets the figures.
    if args.json and args.form.output:
        print_json({"rows": sink.rows, "late": sink.late, "file": args.form.output})
    elif not args.form.quiet:
        late = f", {sink.late:,} of them late" if sink.late else ""
        where = f" in {args.form.output}" if args.form.output else ""
        print(f"{sink.rows:,} rows{late}{where}", file=sys.stderr)


def _cluster(args: ReplayTopics) -> Cluster:
    from rookery.direct.place import ClusterAddress

    if not args.log.is_given:
        return args.address.client_settings("replay")
    settings = args.log.load_settings()
    return ClusterAddress(
        store=settings.store,
        cluster=settings.cluster,
        namespace=settings.namespace,
        data="" if settings.store else settings.data,
    )


def _position(flag: str, text: str) -> Position:
    from rookery.cli.positions import parse_position
    from rookery.clock import SystemClock
    from rookery.model.offset import EARLIEST

    if text in _WORDS:
        return _WORDS[text]
    try:
        found = parse_position(text, SystemClock())
    except ConfigError as error:
        raise ConfigError(error.reason, name=flag) from None
    if found is None or found <= EARLIEST:
        raise ConfigError(f"{flag}: {text!r} is an offset, and a stream has many partitions")
    # Not from a float: those have no milliseconds left in some thousand years.
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=found)


def _options(args: ReplayTopics) -> StreamOptions:
    late: Any = args.order.late
    options: StreamOptions = {
        "event_time": args.order.event_time,
        "late": late,
        "memory": args.order.memory,
        "isolation": "uncommitted" if args.rows.uncommitted else "committed",
        "deadline": timedelta(seconds=args.address.timeout),
        "max_rows": args.rows.max,
        "speed": args.order.speed,
        "on_decode_error": "null",
    }
    if args.order.lateness is not None:
        options["lateness"] = timedelta(seconds=args.order.lateness)
    if args.rows.group is not None:
        options["group"] = args.rows.group
    return options


def _decoders(
    args: ReplayTopics, cluster: Cluster, start: Position, options: StreamOptions
) -> dict[str, DecoderSpec]:
    """Open what values are read with, topic by topic."""
    from rookery.decode.open import names, open_decoder
    from rookery.decode.port import DecoderSettings
    from rookery.decode.registry import SchemaRegistry

    chosen = _by_topic("--decode", args.form.decode, args.topics, "utf8")
    schemas = _by_topic("--schema", args.form.schema, args.topics, "")
    registry = SchemaRegistry(args.form.registry) if args.form.registry else None
    found: dict[str, DecoderSpec] = {}
    for topic, name in chosen.items():
        if name not in names():
            raise ConfigError(f"--decode: {name!r} is none of {', '.join(names())}")
        schema: str | pa.Schema | None = schemas[topic] or None
        if name == "json" and schema is None:
            schema = _fields(cluster, topic, start, options)
        found[topic] = open_decoder(name, DecoderSettings(schema=schema, registry=registry))
    return found


def _by_topic(
    flag: str, given: Sequence[str], topics: Sequence[str], default: str
) -> dict[str, str]:
    """Read `VALUE` and `TOPIC=VALUE`; the last one that fits a topic counts."""
    found = dict.fromkeys(topics, default)
    for text in given:
        topic, equals, value = text.partition("=")
        if equals and topic in found:
            found[topic] = value
        elif equals and flag == "--decode":
            raise ConfigError(f"{flag}: {topic!r} is not among the topics")
        else:
            found = dict.fromkeys(topics, text)
    return found


def _fields(cluster: Cluster, topic: str, start: Position, options: StreamOptions) -> pa.Schema:
    """Find the fields of JSON values in a topic's first rows."""
    from rookery.cli.jsonfields import fields_of
    from rookery.consumer.api import replay

    shown: StreamOptions = {
        "order": "none",
        "columns": ["value"],
        "late": "drop",
        "max_rows": _SAMPLE_ROWS,
        "isolation": options["isolation"],
        "deadline": options["deadline"],
    }
    with replay(cluster, topic, start=start, **shown) as stream:
        found = fields_of(_values(stream))
    if found is None:
        raise ConfigError(
            f"--decode json: the first rows of {topic} hold no JSON objects; name the fields with "
            "--schema, or read them with --decode utf8"
        )
    return found


def _values(stream: Any) -> Iterator[bytes]:
    for batch in stream:
        yield from (one for one in batch.column("value").to_pylist() if one is not None)


COMMAND = Command(
    arguments=ReplayTopics,
    run=run,
    summary="Read topics in the order of time, all partitions merged into one stream.",
    example="rookery replay orders payments --from 1h --decode json --format parquet "
    "-o last-hour.parquet",
)
