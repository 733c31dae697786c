"""`rookery replay`: reads topics as one stream in time order, to the terminal or a file."""

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
    "a time such as 2026-01-31T12:00:00Z, or a time span before now such as 30s, 15m, 2h, 7d"
)


@dataclass(frozen=True, kw_only=True)
class ReplayRange:
    """The rows to read."""

    start: str = option(
        "--from",
        default="beginning",
        metavar="WHERE",
        help=f"where to start: beginning (default), end, committed (with --group), {_WHERE}",
    )
    end: str = option(
        "--to",
        default="now",
        metavar="WHERE",
        help=f"where to stop: now (default: the ends of the partitions at the start), {_WHERE}",
    )
    follow: bool = switch("-F", "--follow", help="keep waiting for new rows")
    group: str | None = option(
        "--group",
        metavar="NAME",
        help="the group whose committed offsets `--from committed` uses; it commits none",
    )
    max: int | None = option("-n", "--max", type=count, metavar="N", help="stop after N rows")
    uncommitted: bool = switch("--uncommitted", help="include open and aborted transactions")


@dataclass(frozen=True, kw_only=True)
class ReplayOrder:
    """The order of the rows, and the pace of the output."""

    event_time: str = option(
        "--event-time",
        default="record",
        metavar="WHERE",
        help="the time to order by: record (default), header:NAME, or a field such as "
        "value.created_at",
    )
    lateness: float | None = option(
        "--lateness",
        type=seconds,
        metavar="SECONDS",
        help="the maximum disorder within a partition that is sorted out",
    )
    late: str = option(
        "--late",
        choices=("flag", "drop", "raise"),
        default="flag",
        help="what happens to rows that are later than that (default: %(default)s)",
    )
    speed: float | None = option(
        "--speed",
        type=seconds,
        metavar="TIMES",
        help="the speed as a multiple of the original (default: as fast as possible)",
    )
    memory: int = option(
        "--memory",
        type=count,
        default=256 << 20,
        metavar="BYTES",
        help="the memory for buffered rows, such as 64Mi (default: 256Mi)",
    )


@dataclass(frozen=True, kw_only=True)
class ReplayForm:
    """The decoders of values, and the form of the output."""

    decode: tuple[str, ...] = repeated(
        "--decode",
        metavar="[TOPIC=]NAME",
        help="the decoder of values: raw, utf8 (default), json, avro, protobuf or arrow; for "
        "all topics or for one",
    )
    schema: tuple[str, ...] = repeated(
        "--schema",
        metavar="[TOPIC=]TEXT",
        help="the fields of the values, such as 'id long, name string' (default for JSON: "
        "inferred from the first rows)",
    )
    registry: str | None = option(
        "--registry", metavar="URL", help="the schema registry for Avro and Protobuf"
    )
    format: str = option(
        "--format",
        choices=("table", "json", "arrow", "parquet"),
        default="table",
        help="table: text; json: one object per line; arrow: an IPC stream; parquet: a file",
    )
    output: str | None = option(
        "-o", "--output", metavar="FILE", help="the output file (default: standard output)"
    )
    quiet: bool = switch("-q", "--quiet", help="do not show progress")


@dataclass(frozen=True, kw_only=True)
class ReplayTopics(CommandArguments):
    """The records to read, their order, and the form of the output."""

    topics: tuple[str, ...] = positional(
        "TOPIC", "the topics; at equal times, an earlier argument comes first", nargs="+"
    )
    rows: ReplayRange = part(ReplayRange, "range")
    order: ReplayOrder = part(ReplayOrder, "order")
    form: ReplayForm = part(ReplayForm, "decoding and output")
    address: ClusterOptions = part(ClusterOptions, "connection")
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)


def run(args: ReplayTopics) -> int:
    """Write the records of topics in the order of time."""
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
        position = parse_position(text, SystemClock())
    except ConfigError as error:
        raise ConfigError(error.reason, name=flag) from None
    if position is None or position <= EARLIEST:
        raise ConfigError(f"{flag}: {text!r} is an offset, and a stream has many partitions")
    # Not from a float: those have no milliseconds left in some thousand years.
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=position)


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
    """Open the decoder of each topic."""
    from rookery.decode.open import names, open_decoder
    from rookery.decode.port import DecoderSettings
    from rookery.decode.registry import SchemaRegistry

    chosen = _by_topic("--decode", args.form.decode, args.topics, "utf8")
    schemas = _by_topic("--schema", args.form.schema, args.topics, "")
    registry = SchemaRegistry(args.form.registry) if args.form.registry else None
    decoders: dict[str, DecoderSpec] = {}
    for topic, name in chosen.items():
        if name not in names():
            raise ConfigError(f"--decode: {name!r} is not one of {', '.join(names())}")
        schema: str | pa.Schema | None = schemas[topic] or None
        if name == "json" and schema is None:
            schema = _fields(cluster, topic, start, options)
        decoders[topic] = open_decoder(name, DecoderSettings(schema=schema, registry=registry))
    return decoders


def _by_topic(
    flag: str, given: Sequence[str], topics: Sequence[str], default: str
) -> dict[str, str]:
    """Read `VALUE` and `TOPIC=VALUE`; the last one that fits a topic counts."""
    values = dict.fromkeys(topics, default)
    for text in given:
        topic, equals, value = text.partition("=")
        if equals and topic in values:
            values[topic] = value
        elif equals and flag == "--decode":
            raise ConfigError(f"{flag}: {topic!r} is not among the topics")
        else:
            values = dict.fromkeys(topics, text)
    return values


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
        schema = fields_of(_values(stream))
    if schema is None:
        raise ConfigError(
            f"--decode json: the first rows of {topic} hold no JSON objects; name the fields with "
            "--schema, or read them with --decode utf8"
        )
    return schema


def _values(stream: Any) -> Iterator[bytes]:
    for batch in stream:
        yield from (value for value in batch.column("value").to_pylist() if value is not None)


COMMAND = Command(
    arguments=ReplayTopics,
    run=run,
    summary="Read all partitions of topics as one stream in time order.",
    example="rookery replay orders payments --from 1h --decode json --format parquet "
    "-o last-hour.parquet",
)
