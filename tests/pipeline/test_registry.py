"""Topics whose schemas are in a registry, as a file declares them: Avro and Protobuf, on Spark."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from rookery.pipeline.declaration.load import load
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.testing.registry import RegistryServer
from tests.pipeline.logs import Log, Message
from tests.pipeline.registered import avro, proto, protobuf, record, registrable
from tests.tables.independent import rows_of

DECLARED = """
name = "registered"
[source]
store = "{store}"
topics = ["storks", "terns"]
[topics.storks]
value = "avro"
registry = "{url}"
registry-user = "pipeline"
registry-password = "sesame"
subject = "storks-value"
[topics.terns]
value = "protobuf"
registry = "{url}"
registry-user = "pipeline"
registry-password = "sesame"
subject = "terns-value"
message = "zoo.Bird"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "storks"
topics = ["storks"]
[[sinks]]
layer = "silver"
format = "parquet"
location = "terns"
topics = ["terns"]
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
"""
NOW = BatchPace(is_available_now=True)
STORK = record(id="int")
NAMED = record(id="long", name=["null", "string"])
TERN, SIZED = proto(id="long"), proto(id="long", size="double")


def test_avro_and_protobuf_are_decoded_by_their_subjects(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    with RegistryServer("pipeline", "sesame") as registry:
        path = tmp_path / "registered.toml"
        path.write_text(DECLARED.replace("{store}", log.store).replace("{url}", registry.url))
        pipeline = load(path)
        stork = registry.register("storks-value", json.dumps(STORK))
        tern = registry.register("terns-value", registrable(TERN), "PROTOBUF")
        values = [avro(stork, STORK, id=1), b"no frame", avro(stork, STORK, id=2)]
        log.write("storks", map(Message, values))
        log.write("terns", [Message(protobuf(tern, TERN, id=3)), Message(b"\0\0\0\0\x63\0")])
        run_pipeline(spark, pipeline, NOW)

        named = registry.register("storks-value", json.dumps(NAMED))
        sized = registry.register("terns-value", registrable(SIZED), "PROTOBUF")
        later = [avro(named, NAMED, id=1 << 40, name="d"), avro(stork, STORK, id=5)]
        log.write("storks", map(Message, later))
        log.write("terns", [Message(protobuf(sized, SIZED, id=6, size=0.5))])
        run_pipeline(spark, pipeline, NOW)

    storks, terns = rows_of(pipeline.sinks[1]), rows_of(pipeline.sinks[2])
    assert [(row[0], row[-1]) for row in storks] == [
        (1, None), (2, None), (5, None), (1 << 40, "d"),
    ]  # fmt: skip
    assert [(row[0], row[-1]) for row in terns] == [(3, None), (6, 0.5)]
    dead = rows_of(pipeline.sinks[3])
    assert sorted((str(row[2]), row[1], row[8], row[10]) for row in dead) == [
        ("storks", b"no frame", "no schema id: the value begins with 6e6f206672", None),
        ("terns", b"\0\0\0\0\x63\0", "the registry has no schema 99", 99),
    ]
    assert len(rows_of(pipeline.sinks[0])) == 8
