"""Reading a topic whole, against Parquet and against Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from objectparts.rig import make_topic

from broker import full_java
from rookery.errors import ConfigError, Unavailable
from rookery.testing import jars
from rookery.testing.kafka import KafkaServer
from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import PARTITIONS, Both, both, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CODECS: Final = ("none", "lz4", "zstd")


def scan(scene: Scene) -> None:
    """Compare all of Kafka's columns with Parquet, codec by codec."""
    for codec in _CODECS:
        pair = both(scene, codec)
        _against_parquet(scene, pair, f"all columns, {codec}")
    _against_usual_parquet(scene)


def _against_usual_parquet(scene: Scene) -> None:
    """Compare an uncompressed topic with Parquet as Spark writes it unless told otherwise."""
    pair = both(scene, "none")
    usual = Both(pair.log, f"{pair.parquet}-usual")
    scene.spark.read.parquet(pair.parquet).write.mode("overwrite").parquet(usual.parquet)
    codec = scene.spark.conf.get("spark.sql.parquet.compression.codec")
    _against_parquet(scene, usual, f"all columns, none; Parquet in Spark's default, {codec}")


def offsets(scene: Scene) -> None:
    """Compare the offsets alone, which costs no value a way through Spark."""
    pair = both(scene, "none")
    parquet = scene.spark.read.parquet(pair.parquet).select("offset")
    reader = scene.spark.read.format("rookery").options(store=pair.log.store, subscribe="t")
    ours, theirs = scene.best(
        lambda _: timed(lambda: drain(reader.schema("offset long").load())),
        lambda _: timed(lambda: drain(parquet)),
    )
    scene.add_rate("offsets", "only the offsets / parquet", (ours, theirs), (0.33, 0.5))


def _against_parquet(scene: Scene, pair: Both, what: str) -> None:
    # Its files are listed before the time runs, while our plan is part of ours.
    parquet = scene.spark.read.parquet(pair.parquet)
    _check(scene, parquet, pair.log.read(scene.spark))
    ours, theirs = scene.best(
        lambda _: timed(lambda: drain(pair.log.read(scene.spark))),
        lambda _: timed(lambda: drain(parquet)),
    )
    scene.add_rate("scan", f"{what} / parquet", (ours, theirs), (0.6, 0.9))


def _check(scene: Scene, *frames: DataFrame) -> None:
    """Check that all have the same columns, and each all the rows."""
    names = [frame.columns for frame in frames]
    counts = [frame.count() for frame in frames]
    if any(name != names[0] for name in names) or any(count != scene.rows for count in counts):
        raise RuntimeError(f"they differ: {names}, {counts} of {scene.rows} rows")


def connector() -> str:
    """Return the jars of Spark's Kafka source, fetched with those of Kafka itself.

    Raises:
        ConfigError, Unavailable: they cannot be had.
    """
    jars.jars()
    folder = jars.bundle_jars(jars.CONNECTOR)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def kafka(scene: Scene) -> None:
    """Compare with Spark's own source, which asks a real Kafka for the same rows."""
    if not scene.jars:
        scene.figures.say("kafka: left out, as there are no jars")
        return
    pair = both(scene, "none")
    with KafkaServer(java=full_java()) as server:
        make_topic(server.bootstrap, "t", PARTITIONS)
        options = {"kafka.bootstrap.servers": server.bootstrap}
        filling = {"topic": "t", "kafka.linger.ms": "50", "kafka.batch.size": "1000000"}
        sent = rows(scene).select("key", "value", "partition")
        sent.write.format("kafka").options(**options, **filling).save()
        reader = scene.spark.read.format("kafka").options(**options, subscribe="t")
        _check(scene, pair.log.read(scene.spark), reader.load())
        ours, theirs = scene.best(
            lambda _: timed(lambda: drain(pair.log.read(scene.spark))),
            lambda _: timed(lambda: drain(reader.load())),
        )
    what = "all columns, none / Spark's Kafka source at a real Kafka"
    scene.add_rate("kafka", what, (ours, theirs), (3.5, 6.0))


def find_connector(scene: Scene) -> None:
    """Have Spark started with the jars, if they can be had."""
    try:
        scene.jars = connector()
    except (ConfigError, Unavailable) as error:
        scene.figures.say(f"kafka: {error}")
