"""Options of the source: Kafka's names and rules, and refusals that say what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pyspark_rookery import DefaultSource
from rookery.direct.offsets import EARLIEST, LATEST
from rookery.errors import ConfigError
from rookery.spark import schema as columns
from rookery.spark import source
from rookery.spark.read.batchread import BatchReader
from rookery.spark.read.options import ReadOptions
from rookery.spark.source import SourceOptions
from rookery.spark.write.writeoptions import WriteOptions
from tests.direct.logs import Cluster, send, values

PLACE = {"store": "file:///x"}
TOPIC = {**PLACE, "subscribe": "t"}


def test_batch_defaults_equal_those_of_kafka() -> None:
    options = ReadOptions.of(TOPIC)
    assert (options.start.offset, options.end.offset) == (EARLIEST, LATEST)
    assert options.columns == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    )  # fmt: skip
    assert options.is_committed
    assert options.on_data_loss == "fail"
    assert not options.pace.is_bounded


def test_stream_starts_at_the_end() -> None:
    assert ReadOptions.of(TOPIC, is_stream=True).start.offset == LATEST


def test_option_names_are_case_insensitive() -> None:
    options = ReadOptions.of({**PLACE, "SUBSCRIBE": "a, b", "includeheaders": "True"})
    assert options.subscription.topics == ("a", "b")
    assert "headers" in options.columns


def test_offsets_and_times_can_be_given_per_partition() -> None:
    given = {
        **TOPIC,
        "startingOffsets": json.dumps({"t": {"0": 5, "1": -2}}),
        "endingOffsetsByTimestamp": json.dumps({"t": {"0": 9, "1": 10}}),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "77",
    }
    options = ReadOptions.of(given)
    assert options.start.offsets == {"t": {0: 5, 1: EARLIEST}}
    assert options.end.times == {"t": {0: 9, 1: 10}}
    assert options.end.time_ms == 77
    assert options.start.if_none == "latest"


def test_partition_named_twice_is_read_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        send(broker, "t", values(5))
    given = {"store": cluster.store, "assign": json.dumps({"t": [0, 0]})}
    reader = BatchReader(ReadOptions.of(given))
    assert sum(b.num_rows for share in reader.partitions() for b in reader.read(share)) == 5


def test_rate_of_a_stream_is_configured() -> None:
    given = {
        **TOPIC,
        "maxOffsetsPerTrigger": "10",
        "minOffsetsPerTrigger": "5",
        "maxTriggerDelay": "2m",
        "maxBytesPerTrigger": "1000",
    }
    pace = ReadOptions.of(given, is_stream=True).pace
    assert (pace.max_offsets, pace.min_offsets, pace.max_bytes) == (10, 5, 1000)
    assert pace.max_delay_ms == 120_000


def test_group_is_named_or_stable_across_restarts() -> None:
    assert ReadOptions.of({**TOPIC, "kafka.group.id": "g", "groupIdPrefix": "p"}).group_id == "g"
    made = ReadOptions.of({**TOPIC, "groupIdPrefix": "p"}).group_id
    assert made.startswith("p-")
    assert made == ReadOptions.of({**TOPIC, "groupIdPrefix": "p"}).group_id
    assert made != ReadOptions.of({**PLACE, "subscribe": "u", "groupIdPrefix": "p"}).group_id
    assert not ReadOptions.of(TOPIC).group_id


def test_data_loss_option_of_kafka_is_supported() -> None:
    assert ReadOptions.of({**TOPIC, "failOnDataLoss": "false"}).on_data_loss == "skip"
    given = {**TOPIC, "onDataLoss": "report", "gapsTo": "/gaps"}
    assert ReadOptions.of(given).on_data_loss == "report"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**TOPIC, "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({**TOPIC, "kafka.bootstrap.servers": "h:1"}, "reads the objects, not the brokers"),
        ({**TOPIC, "path": "t"}, "takes no path"),
        ({**TOPIC, "kafka.max.poll.records": "1"}, "not known"),
        ({"subscribe": "t"}, "give the location of the log"),
        (PLACE, "exactly one of subscribe"),
        ({**TOPIC, "assign": '{"t": [0]}'}, "exactly one of subscribe"),
        ({**PLACE, "assign": '{"t": 0}'}, "write partitions as"),
        ({**PLACE, "subscribePattern": "("}, "subscribePattern"),
        ({**TOPIC, "startingOffsets": "latest"}, "cannot start at latest"),
        ({**TOPIC, "startingOffsets": '{"t": {"0": -1}}'}, "cannot start at latest"),
        ({**TOPIC, "endingOffsets": "earliest"}, "cannot end at earliest"),
        ({**TOPIC, "endingOffsets": '{"t": {"0": -2}}'}, "cannot end at earliest"),
        ({**TOPIC, "startingOffsets": "first"}, "not JSON"),
        ({**TOPIC, "startingOffsets": '{"t": {"0": 1.5}}'}, "write earliest, latest or JSON"),
        ({**TOPIC, "startingTimestamp": "yesterday"}, "milliseconds"),
        ({**TOPIC, "minPartitions": "0"}, "whole number from 1"),
        ({**TOPIC, "columns": "key,body"}, "choose one or more"),
        ({**TOPIC, "includeHeaders": "maybe"}, "write true or false"),
        ({**TOPIC, "onDataLoss": "report"}, "gapsTo"),
        ({**TOPIC, "onDataLoss": "skip", "failOnDataLoss": "true"}, "contradict"),
        ({**TOPIC, "kafka.isolation.level": "dirty"}, "choose from read_committed"),
        ({**TOPIC, "orderBy": "timestamp", "latestPerKey": "true"}, "choose one"),
        ({**TOPIC, "orderBy": "offset"}, "orderBy='offset': choose from timestamp"),
        ({**TOPIC, "maxTriggerDelay": "soon"}, "write it as 30s"),
        ({**TOPIC, "pinFor": "9" * 5000}, "pinFor='9+'…: write it as 30s"),
        ({**TOPIC, "startingOffsetsByTimestamp": "{}"}, "startingOffsetsByTimestamp='{}': write"),
        ({**TOPIC, "startingOffsets": '{"t": {"²": 7}}'}, "startingOffsets=.*: write earliest"),
        ({**TOPIC, "startingOffsets": f'{{"t": {{"0": {10**30}}}}}'}, "startingOffsets=.*: write"),
        ({**TOPIC, "startingOffsets": f'{{"t": {{"0": {"9" * 5000}}}}}'}, "startingOffsets=.*JSON"),
        ({**TOPIC, "minPartitions": "²"}, "minPartitions='²': must be a whole number"),
        ({**TOPIC, "maxRecordsPerPartition": "9" * 5000}, "maxRecordsPerPartition='9+'…: must be"),
        ({**TOPIC, "startingTimestamp": str(10**30)}, "startingTimestamp=.*: must be milliseconds"),
    ],
)
def test_invalid_options_are_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ReadOptions.of(given)


def test_options_of_writers_are_ignored_by_readers() -> None:
    given = {**TOPIC, "topic": "t", "SINKID": "s", "createTopic": "3"}
    assert ReadOptions.of(given) == ReadOptions.of(TOPIC)
    written = WriteOptions.of({**given, "columns": "key,value"}, is_stream=False)
    assert written.packing.topic == "t"
    with pytest.raises(ConfigError, match="'logDir' is not known"):
        WriteOptions.of({**PLACE, "topic": "t", "logDir": "/kafka"}, is_stream=False)


def test_table_options_are_stored_with_its_columns() -> None:
    made = {"provider": "rookery", "owner": "me", "option.subscribe": "t", "option.store": "s3://b"}
    schema = SourceOptions(made).schema()
    assert source.load_options(schema) == {"subscribe": "t", "store": "s3://b"}
    assert source.load_options(columns.spark_schema(("value",))) == {}
    with pytest.raises(ConfigError, match="say which topic it is"):
        SourceOptions({"provider": "rookery", "owner": "me"})
    with pytest.raises(ConfigError, match="store: has a secret in it"):
        SourceOptions({"option.store": "s3://b?secret_access_key=x", "option.subscribe": "t"})


def test_statement_options_take_precedence_over_those_of_the_table() -> None:
    elsewhere = {"data": "/folder", "topic": "copy"}
    assert source.merge_options({"subscribe": "t", "store": "s3://b"}, elsewhere) == elsewhere
    both = source.merge_options({"subscribe": "t", "store": "s3://b"}, {"Subscribe": "u"})
    assert both == {"Subscribe": "u", "store": "s3://b"}
    assert source.choose_topic(both)["topic"] == "u"
    assert "topic" not in source.choose_topic({"subscribe": "t,u"})
    assert source.choose_topic({"subscribe": "t", "topic": "v"})["topic"] == "v"
    with pytest.raises(ConfigError, match="no option is given"):
        source.merge_options({}, {})


@pytest.mark.parametrize(
    "name",
    ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "orderBy", "pushdown"],
)
def test_batch_only_options_are_refused_on_streams(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: for batches alone"):
        ReadOptions.of({**TOPIC, name: "timestamp"}, is_stream=True)
    with pytest.raises(ConfigError, match="latestPerKey: for batches alone"):
        ReadOptions.of({**TOPIC, "latestPerKey": "true"}, is_stream=True)


@pytest.mark.parametrize(
    "name",
    ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger"],
)
def test_spark_without_read_limits_refuses_them_by_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 4.2 Spark asks a source for all there is: a bound would hold for nothing."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    monkeypatch.delitem(sys.modules, "rookery.spark.read.streamread", raising=False)
    value = "1m" if name == "maxTriggerDelay" else "5"
    bounded = DefaultSource({**TOPIC, name.lower(): value})
    with pytest.raises(ConfigError, match=f"^{name}: limits of batches need pyspark 4.2"):
        bounded.streamReader(columns.spark_schema(("value",)))
    with pytest.raises(ConfigError, match=r"^streams need pyspark 4\.2"):
        DefaultSource(TOPIC).streamReader(columns.spark_schema(("value",)))
