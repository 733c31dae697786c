"""The work of `rookery replay`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from rookery.cli.actions.connecting import client_settings
from rookery.cli.actions.consume import place_of
from rookery.cli.actions.rowforms import Sink, open_sink
from rookery.cli.command import print_json
from rookery.cli.storing import load_settings
from rookery.clock import SystemClock
from rookery.consumer.api import Cluster
from rookery.consumer.api import replay as replay_stream
from rookery.consumer.positions import Position
from rookery.consumer.settings import DecoderSpec, Options
from rookery.decode.open import names, open_decoder
from rookery.decode.port import DecoderSettings
from rookery.decode.registry import Registry
from rookery.direct.place import Place
from rookery.errors import ConfigError
from rookery.model.offset import EARLIEST

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS: Final[dict[str, Position]] = {
    "beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest",
    "now": "now", "committed": "committed",
}  # fmt: skip
_SAMPLE_ROWS: Final = 1_000


def replay(args: argparse.Namespace) -> int:
    """Write what topics hold, in the order of time; return the exit code."""
    cluster = _cluster(args)
    start, end = _position("--from", args.start), _position("--to", args.end)
    form = "json" if args.json and args.format == "table" else args.format
    options = _options(args)
    options["value"] = _decoders(args, cluster, start, options)
    options["progress"] = not args.quiet and sys.stderr.isatty()
    then: Any = "live" if args.follow else "stop"
    with (
        open_sink(form, args.output) as sink,
        replay_stream(cluster, args.topics, start=start, end=end, then=then, **options) as stream,
    ):
        for batch in stream:
            sink.write(batch.data)
        sink.end(stream.schema)
    _tell(args, sink)
    return 0


def _tell(args: argparse.Namespace, sink: Sink) -> None:
    # Whoever wants JSON and has the rows in a file gets the figures.
    if args.json and args.output:
        print_json({"rows": sink.rows, "late": sink.late, "file": args.output})
    elif not args.quiet:
        late = f", {sink.late:,} of them late" if sink.late else ""
        where = f" in {args.output}" if args.output else ""
        print(f"{sink.rows:,} rows{late}{where}", file=sys.stderr)


def _cluster(args: argparse.Namespace) -> Cluster:
    if not args.config and not any(f"setting {n}" in args for n in ("data", "store", "cluster")):
        return client_settings(args)
    settings = load_settings(args)
    return Place(
        store=settings.store,
        cluster=settings.cluster,
        namespace=settings.namespace,
        data="" if settings.store else settings.data,
    )


def _position(flag: str, text: str) -> Position:
    if text in _WORDS:
        return _WORDS[text]
    try:
        found = place_of(text, SystemClock())
    except ConfigError as error:
        raise ConfigError(str(error).replace("--from", flag)) from None
    if found is None or found <= EARLIEST:
        raise ConfigError(f"{flag}: {text!r} is an offset, and a stream has many partitions")
    # Not from a float: those have no milliseconds left in some thousand years.
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=found)


def _options(args: argparse.Namespace) -> Options:
    options = Options(
        event_time=args.event_time,
        late=args.late,
        memory=args.memory,
        isolation="uncommitted" if args.uncommitted else "committed",
        deadline=timedelta(seconds=args.timeout),
        max_rows=args.max,
        speed=args.speed,
        on_decode_error="null",
    )
    if args.lateness is not None:
        options["lateness"] = timedelta(seconds=args.lateness)
    if args.group is not None:
        options["group"] = args.group
    return options


def _decoders(
    args: argparse.Namespace, cluster: Cluster, start: Position, options: Options
) -> dict[str, DecoderSpec]:
    """Open what values are read with, topic by topic."""
    chosen = _by_topic("--decode", args.decode, args.topics, "utf8")
    schemas = _by_topic("--schema", args.schema, args.topics, "")
    registry = Registry(args.registry) if args.registry else None
    found: dict[str, DecoderSpec] = {}
    for topic, name in chosen.items():
        if name not in names():
            raise ConfigError(f"--decode: {name!r} is none of {', '.join(names())}")
        schema: str | pa.Schema | None = schemas[topic] or None
        if name == "json" and schema is None:
            schema = _fields(cluster, topic, start, options)
        found[topic] = open_decoder(name, DecoderSettings(schema=schema, registry=registry))
    return found


def _by_topic(flag: str, given: list[str], topics: list[str], default: str) -> dict[str, str]:
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


def _fields(cluster: Cluster, topic: str, start: Position, options: Options) -> pa.Schema:
    """Find the fields of JSON values in a topic's first rows."""
    from rookery.cli.actions.jsonfields import fields_of  # noqa: PLC0415 (JSON only)

    shown: Options = {
        "order": "none",
        "columns": ["value"],
        "late": "drop",
        "max_rows": _SAMPLE_ROWS,
        "isolation": options["isolation"],
        "deadline": options["deadline"],
    }
    with replay_stream(cluster, topic, start=start, **shown) as stream:
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
