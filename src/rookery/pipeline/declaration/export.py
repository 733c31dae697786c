"""Exports the declaration as a project of Spark's Declarative Pipelines.

Features that they lack are omitted, and the project says so: exactly-once over several tables, dead
letters (a second flow over bronze finds them), late rows, upserts, and checks that keep bad rows.
Spark's own functions do not support schemas of a registry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from rookery.decode import ddl, variant
from rookery.errors import ConfigError
from rookery.model.location import find_secret
from rookery.pipeline.declaration.decoders import decoder_settings
from rookery.pipeline.declaration.spec import Decode, Pipeline, readable

_SPEC: Final = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
_HEAD: Final = '''\
"""Made from the pipeline {name!r} by `rookery pipeline export`."""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
PLACE = ("topic", "partition", "offset", "timestamp")
RAW = ("key", "value", *PLACE, "timestampType")


@dp.table(name="bronze")
def bronze():
    """Every record as it came."""
    return spark.readStream.format("rookery").options(**{options}).load()


def _together(parts):
    """Rows of several topics; columns that one of them lacks are null."""
    rows, *others = parts
    for other in others:
        rows = rows.unionByName(other, allowMissingColumns=True)
    return rows
'''
_TOPIC: Final = """

def _rows_{number}():
    rows = spark.readStream.table("bronze").where(f.col("topic") == {topic!r})
    raw = f.struct(*RAW).alias("_raw")
    decoded = rows.select(raw, {decoded}.alias("_value"))
    return decoded.select("_raw", {columns}).withColumn("_good", {is_good})


def _good_{number}():
    places = (f.col("_raw." + name).alias("rookery_" + name) for name in PLACE)
    return _rows_{number}().where("_good").select({names}, *places)
"""
_SILVER: Final = '''

@dp.table(name="{table}")
def {table}():
    """Records of {topics} that could be decoded."""
    return _together([{parts}])
'''
_NAMED: Final = """

@dp.temporary_view(name="{name}")
def _view_{name}():
    return spark.read.table("silver")
"""
_DEAD: Final = '''

@dp.table(name="silver_dead")
def silver_dead():
    """Records that could not, or that fail a check."""
    is_dead = ~f.col("_good") & f.col("_raw.value").isNotNull()
    return _together([rows.where(is_dead).select("_raw.*") for rows in [{parts}]])
'''
_GOLD: Final = "CREATE MATERIALIZED VIEW {name} AS\n{sql}\n"
_README: Final = """\
# {name}

Made by `rookery pipeline export`. To run it:

    spark-pipelines run --remote "local[2]" --conf spark.sql.catalogImplementation=hive

Runs are triggered ones. Not carried over, since Declarative Pipelines have no such thing: one
commit over all tables, late rows, dedupe, upserts, replay of dead letters, upkeep of tables.
"""


def export(pipeline: Pipeline, folder: Path) -> list[Path]:
    """Write the project into a folder, which must be empty or absent; return its files.

    Raises:
        ConfigError: the folder is not empty, Spark does not support a decoder, or a secret would be
            written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: there is something in it; name an empty folder")
    if find_secret(pipeline.source.store) or find_secret(pipeline.source.cluster):
        raise ConfigError(
            "source: its address has a secret in it, which the project would show to all readers:"
            " name the cluster in the configuration, and write cluster = NAME"
        )
    files = {
        "spark-pipeline.yml": _SPEC.format(
            name=_word(pipeline.name), storage=(folder.absolute() / "storage").as_uri()
        ),
        "README.md": _README.format(name=_word(pipeline.name)),
        "transformations/tables.py": _tables(pipeline),
    }
    for gold in pipeline.gold:
        files[f"transformations/{_word(gold.name)}.sql"] = _GOLD.format(
            name=_word(gold.name), sql=gold.sql
        )
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [folder / name for name in files]


def _tables(pipeline: Pipeline) -> str:
    source = pipeline.source
    options = {
        **source.place_options(),
        "subscribe": ",".join(source.topics),
        "startingOffsets": source.starting_offsets,
    }
    text = _HEAD.format(name=pipeline.name, options=json.dumps(options))
    if not pipeline.of("silver"):
        return text
    numbers = range(len(source.topics))
    text += "".join(_topic(pipeline, number) for number in numbers)
    text += "".join(_silver(pipeline))
    return text + _DEAD.format(parts=", ".join(f"_rows_{number}()" for number in numbers))


def _topic(pipeline: Pipeline, number: int) -> str:
    topic = pipeline.source.topics[number]
    decode = _whole(pipeline.decode(topic))
    is_json = decode.value == "json" and not _is_variant(decode)
    return _TOPIC.format(
        number=number,
        topic=topic,
        decoded=_decode(topic, decode),
        columns='"_value.*"' if is_json else 'f.col("_value").alias("value")',
        names=", ".join(map(repr, ddl.parse(decode.schema).names)) if is_json else "'value'",
        is_good=_is_good(pipeline, decode),
    )


def _silver(pipeline: Pipeline) -> Iterator[str]:
    """Yield the silver tables, with the names that gold uses for them in the pipeline."""
    silver = pipeline.of("silver")
    for number, sink in enumerate(readable(silver) or silver[:1]):
        name = _word(sink.name or f"silver{number or ''}")
        taken = [at for at, topic in enumerate(pipeline.source.topics) if sink.takes(topic)]
        yield _SILVER.format(
            table=name if number else "silver",
            topics=", ".join(pipeline.source.topics[at] for at in taken),
            parts=", ".join(f"_good_{at}()" for at in taken),
        )
        if not number and name != "silver":
            yield _NAMED.format(name=name)


def _whole(decode: Decode) -> Decode:
    """Return the decoding of a topic, with the schema loaded from its file."""
    if decode.value != "json" or not decode.schema_file:
        return decode
    schema = decoder_settings(decode).schema
    return replace(decode, schema=str(schema).strip(), schema_file="")


def _decode(topic: str, decode: Decode) -> str:
    value = 'f.col("value")'
    if _is_variant(decode):
        return f'f.try_parse_json({value}.cast("string"))'
    if decode.value == "json":
        schema = f"{decode.schema}, _corrupt string"
        options = '{"columnNameOfCorruptRecord": "_corrupt"}'
        return f'f.from_json({value}.cast("string"), {schema!r}, {options})'
    if decode.value == "utf8":
        return f'{value}.cast("string")'
    if decode.value == "raw":
        return value
    raise ConfigError(
        f"topic {topic!r}: decoder {decode.value!r} needs rookery's own functions, which a pipeline"
        " of Spark's cannot be exported with: json, utf8 and raw can"
    )


def _is_good(pipeline: Pipeline, decode: Decode) -> str:
    terms = ['f.col("_raw.value").isNotNull()']
    if _is_variant(decode):
        terms.append('f.col("value").isNotNull()')
    elif decode.value == "json":
        terms.append('f.col("_corrupt").isNull()')
    terms += [
        f"f.coalesce(f.expr({expression!r}), f.lit(False))"
        for expression in pipeline.silver.checks.values()
    ]
    return " & ".join(terms)


def _is_variant(decode: Decode) -> bool:
    return decode.value == "json" and variant.is_named(decode.schema)


def _word(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name)
