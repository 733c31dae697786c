"""`pipeline.toml`: what it may contain, and how errors are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.errors import ConfigError
from rookery.pipeline.declaration.load import load
from rookery.tables.port import Upsert

MINIMAL = """
[source]
data = "broker"
topics = ["birds"]
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
"""


def read(folder: Path, text: str) -> object:
    path = folder / "birds.toml"
    path.write_text(text)
    return load(path)


def test_paths_are_relative_to_the_file_and_names_come_from_it(tmp_path: Path) -> None:
    path = tmp_path / "birds.toml"
    path.write_text(MINIMAL + '[silver]\nmode = "upsert"\nkeys = ["id"]\n')

    pipeline = load(path)

    assert pipeline.name == "birds"
    assert pipeline.state == str(tmp_path / ".rookery/birds")
    assert pipeline.sinks[0].location == str(tmp_path / "bronze")
    assert pipeline.source.data == str(tmp_path / "broker")
    assert pipeline.silver.upsert() == Upsert(
        ("id",), ("rookery_offset",), "rookery_deleted", 32 << 20
    )


def test_urls_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(
        MINIMAL.replace('"bronze"\n', '"s3://b/x?region=r"\n').replace(
            'layer = "s3://b/x?region=r"', 'layer = "bronze"'
        )
    )

    assert load(path).sinks[0].location == "s3://b/x?region=r"
    assert load(str(path)) == load(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[source]", "[source", "no TOML"),
        ("topics =", "topic =", r"source.topic: unknown; did you mean topics\?"),
        ('["birds"]', '"birds"', "source.topics: 'birds' is not a list"),
        ('["birds"]', "[1]", "source.topics: its values must be text"),
        ('format = "parquet"\n', "", "sinks 1.format: is missing"),
        ('"parquet"', '"orc"', "format 'orc', not of delta"),
        ('layer = "bronze"', 'layer = "iron"', "layer 'iron'"),
        ('["birds"]', "[]", "name one at least"),
        ("[[sinks]]", "[topics.cats]\n[[sinks]]", "topics.cats: source.topics does not have it"),
        ("[[sinks]]", '[silver]\ndedupe = "no"\n[[sinks]]', "'no' is not true or false"),
        ("[[sinks]]", '[upkeep]\nkeep = "ever"\n[[sinks]]', "not a span of time"),
        ("[[sinks]]", 'name = "x"\n[[sinks]]', "source.name: unknown"),
        ("[source]", 'topics = ["birds"]\n[source]', r"topics: write \[topics.NAME\]"),
        (
            "[[sinks]]",
            'starting-offsets = "earlest"\n[[sinks]]',
            r"source.starting-offsets 'earlest', .*; did you mean earliest\?",
        ),
        (
            "[[sinks]]",
            'on-data-loss = "Skip"\n[[sinks]]',
            r"source.on-data-loss 'Skip', not of fail, skip; did you mean skip\?",
        ),
        ('layer = "bronze"', 'layer = "bronce"', r"did you mean bronze\?"),
        ('"parquet"', '"praquet"', r"did you mean parquet\?"),
    ],
)
def test_mistakes_are_reported_with_a_remedy(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as told:
        read(tmp_path, MINIMAL.replace(old, new, 1))
    assert "birds.toml" in str(told.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "nothing.toml")


def test_missing_layers_are_reported(tmp_path: Path) -> None:
    silver = '[[sinks]]\nlayer = "silver"\nformat = "parquet"\nlocation = "silver"\n'
    with pytest.raises(ConfigError, match="'dead-letters'"):
        read(tmp_path, MINIMAL + silver)
    late = '[silver]\nevent-time = "at"\nwatermark = "1 hour"\n'
    with pytest.raises(ConfigError, match="'late'"):
        read(tmp_path, MINIMAL + late)
    with pytest.raises(ConfigError, match="share the folder"):
        read(tmp_path, MINIMAL + MINIMAL[MINIMAL.index("[[sinks]]") :])
