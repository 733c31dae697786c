"""Rules for the tables of a pipeline, so that no row is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rookery.pipeline.declaration.choices import not_of, suggest, wrong_words
from rookery.tables.identity import Key, identities
from rookery.tables.open import formats

if TYPE_CHECKING:
    from rookery.pipeline.declaration.spec import Layer, Pipeline, Sink


def sink_problems(pipeline: Pipeline) -> Iterator[str]:
    """Yield the errors in a pipeline's tables."""
    known = formats()
    for number, sink in enumerate(pipeline.sinks, 1):
        yield from wrong_words(f"sink {number}: ", sink)
        yield from not_of(f"sink {number}: format", sink.format, known)
        if not sink.location:
            yield f"sink {number}: say its location"
        for topic in sink.topics:
            if topic not in pipeline.source.topics:
                hint = suggest(topic, pipeline.source.topics)
                yield f"sink {number}: topics: source.topics does not have {topic!r}{hint}"
        if sink.layer == "silver" and sink.format == "topic" and pipeline.silver.mode == "upsert":
            yield f"sink {number}: records of a topic are only added; it cannot have upserts"
    for gold in pipeline.gold:
        replaceable = [kind for kind in known if kind != "topic"]
        yield from not_of(f"gold {gold.name!r}: format", gold.format, replaceable)
    yield from _find_missing(pipeline)
    yield from _find_shared(pipeline)


def has_files(sink: Sink) -> bool:
    """Return whether a table consists of files that executors can read again."""
    return sink.format in ("parquet", "iceberg", "delta")


def _find_missing(pipeline: Pipeline) -> Iterator[str]:
    has_silver = bool(pipeline.of("silver"))
    if not pipeline.of("bronze"):
        yield "there is no sink of the layer 'bronze'"
    if pipeline.silver.watermark:
        yield from _find_left_out(pipeline, "late", "rows that come too late")
    if has_silver:
        yield from _find_left_out(pipeline, "dead-letters", "bad rows")
    if pipeline.gold and not any(map(has_files, pipeline.of("silver"))):
        yield "gold: needs a silver table of files (parquet, iceberg or delta)"


def _find_left_out(pipeline: Pipeline, layer: Layer, rows: str) -> Iterator[str]:
    """Yield the topics whose rows have no table; all topics are decoded if there is silver."""
    sinks = pipeline.of(layer)
    if not sinks:
        yield f"there is no sink of the layer {layer!r}, where {rows} could go"
        return
    for topic in pipeline.source.topics:
        if not any(sink.takes(topic) for sink in sinks):
            yield f"no sink of the layer {layer!r} takes topic {topic!r}: its {rows} would be lost"


def _find_shared(pipeline: Pipeline) -> Iterator[str]:
    """Yield an error for each pair of sinks that are the same table."""
    owners: dict[Key, str] = {}
    for owner, keys in _tables(pipeline):
        for key, words in keys.items():
            other = owners.setdefault(key, owner)
            if other != owner:
                yield f"{other} and {owner} share {words}; give each its own"


def _tables(pipeline: Pipeline) -> Iterator[tuple[str, dict[Key, str]]]:
    for number, sink in enumerate(pipeline.sinks, 1):
        words = "their layer, format, location and name"
        yield f"sink {number} ({sink.layer})", {**identities(sink.table()), _key(sink): words}
    for number, gold in enumerate(pipeline.gold, 1):
        yield f"gold {number} ({gold.name})", identities(gold.table())


def _key(sink: Sink) -> Key:
    """Return the key of a table in manifests (`engine.sink_key`), which excludes options."""
    return ("key", sink.layer, sink.format, sink.location.partition("?")[0], sink.name)
