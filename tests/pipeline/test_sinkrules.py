"""Declarations that would lose rows: shared tables, and topics without a sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.pipeline.declaration.spec import Gold, Pipeline, Silver, Sink, Source

LAKE = "sqlite:////lake/catalog.db"


def sink(layer: Any, format: str, location: str, **more: Any) -> Sink:  # noqa: A002 (the field's name)
    return Sink(layer=layer, format=format, location=location, **more)


def pipeline(*sinks: Sink, topics: tuple[str, ...] = ("birds",), **more: Any) -> Pipeline:
    source = Source(topics=topics, data="/nowhere")
    return Pipeline(name="birds", state="/nowhere", source=source, sinks=sinks, **more)


DEAD = sink("dead-letters", "parquet", "/lake/dead")
BRONZE = sink("bronze", "parquet", "/lake/bronze")
ICE = sink("bronze", "iceberg", "/lake/bronze/birds", options={"catalog": LAKE})
CLEAN = {"data": "/data"}


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        (
            ICE,
            sink("silver", "iceberg", "/lake/silver/birds", options={"catalog": LAKE}),
            "the table 'default.birds' of a catalog",
        ),
        (
            sink("bronze", "iceberg", "/lake/bronze", name="birds"),
            sink("silver", "iceberg", "/lake/silver", name="birds"),
            "the table 'default.birds' of a catalog",
        ),
        (
            sink("bronze", "parquet", "/lake/x", name="a"),
            sink("silver", "parquet", "/lake/x/", name="b"),
            "the folder /lake/x;",
        ),
        (BRONZE, sink("silver", "delta", "/lake/../lake/bronze"), "the folder /lake/bronze;"),
        (
            sink("bronze", "iceberg", "/lake/x", name="a"),
            sink("silver", "iceberg", "/lake/x", name="b"),
            "the folder /lake/x;",
        ),
        (
            sink("bronze", "parquet", "s3://lake/x?region=a"),
            sink("silver", "parquet", "s3://lake/x?region=b", name="b"),
            "the folder s3://lake/x;",
        ),
        (
            sink("bronze", "duckdb", "/lake/x.db"),
            sink("silver", "duckdb", "/lake/x.db", name="x"),
            "the table 'x' of /lake/x.db",
        ),
        (
            sink("bronze", "topic", "clean", name="a", options=CLEAN),
            sink("silver", "topic", "clean", name="b", options=CLEAN),
            "the topic 'clean'",
        ),
        (
            sink("bronze", "topic", "clean", options=CLEAN),
            sink("bronze", "topic", "clean", options={"data": "/other"}),
            "their layer, format, location and name",
        ),
    ],
)
def test_two_sinks_with_one_table_are_refused(left: Sink, right: Sink, words: str) -> None:
    with pytest.raises(ConfigError) as told:
        pipeline(left, right, DEAD)
    assert f"sink 1 ({left.layer}) and sink 2 ({right.layer}) share {words}" in str(told.value)
    assert "sqlite" not in str(told.value)


def test_symbolic_links_do_not_hide_a_shared_table(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    bronze = sink("bronze", "parquet", str(tmp_path / "lake"))
    gold = Gold(name="total", sql="", location=str(tmp_path / "link"))

    with pytest.raises(ConfigError, match=r"sink 1 \(bronze\) and gold 1 \(total\) share the fold"):
        pipeline(bronze, sink("silver", "parquet", "/lake/silver"), DEAD, gold=(gold,))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (ICE, sink("silver", "iceberg", "/lake/silver/birds")),
        (
            ICE,
            sink(
                "silver", "iceberg", "/lake/silver/birds",
                options={"catalog": LAKE, "namespace": "silver"},
            ),
        ),
        (sink("bronze", "duckdb", "/x.db", name="a"), sink("silver", "duckdb", "/x.db", name="b")),
        (
            sink("bronze", "parquet", "s3://lake/x?endpoint=http://a"),
            sink("silver", "parquet", "s3://lake/x?endpoint=http://b"),
        ),
        (
            sink("bronze", "topic", "clean", options=CLEAN),
            sink("silver", "topic", "clean", options={"data": "/other"}),
        ),
    ],
)  # fmt: skip
def test_tables_with_similar_locations_are_distinct(left: Sink, right: Sink) -> None:
    assert pipeline(left, right, DEAD).sinks == (left, right, DEAD)


@pytest.mark.parametrize("layer", ["bronze", "silver", "dead-letters"])
def test_topics_of_a_sink_are_those_of_the_source(layer: str) -> None:
    silver = sink("silver", "parquet", "/lake/silver")
    wrong = sink(layer, "parquet", "/lake/more", topics=("brids",))

    with pytest.raises(ConfigError, match=r"sink 4: .* 'brids'; did you mean birds\?"):
        pipeline(BRONZE, silver, DEAD, wrong)


def test_every_topic_has_a_table_for_bad_and_late_rows() -> None:
    silver = sink("silver", "parquet", "/lake/silver", topics=("birds",))
    dead = sink("dead-letters", "parquet", "/lake/dead", topics=("birds",))
    late = sink("late", "parquet", "/lake/late", topics=("birds",))
    both, timed = ("birds", "nests"), Silver(event_time="at", watermark="1 hour")

    with pytest.raises(ConfigError, match="'dead-letters' takes topic 'nests': its bad rows"):
        pipeline(BRONZE, silver, dead, topics=both)
    with pytest.raises(ConfigError, match="'late' takes topic 'nests'"):
        pipeline(BRONZE, silver, DEAD, late, topics=both, silver=timed)
    pipeline(BRONZE, silver, DEAD, topics=both)
    pipeline(BRONZE, topics=both)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gold": (Gold(name="g", sql="", location="/g", format="praquet"),)}, "mean parquet"),
        ({"gold": (Gold(name="g", sql="", location="/g", format="topic"),)}, "'topic', not of"),
        ({"silver": Silver(mode="upsert", keys=("id",))}, "sink 3: .* are only added"),
    ],
)
def test_sinks_that_would_fail_later_are_refused_at_load(more: dict[str, Any], words: str) -> None:
    silver = sink("silver", "parquet", "/lake/silver")
    topic = sink("silver", "topic", "clean", options=CLEAN)
    with pytest.raises(ConfigError, match=words):
        pipeline(BRONZE, silver, topic, DEAD, **more)
