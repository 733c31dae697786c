"""`rookery replay`: forms, ranges, decoders, and sources with and without a broker."""

from __future__ import annotations

import io
import json
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from rookery.cli.jsonfields import fields_of
from rookery.cli.output.lines import to_json
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from rookery.testing.broker import BrokerProcess
from tests.cli.running import Rookery

NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


def _produce(rookery: Rookery, topic: str, hours: list[int], name: str) -> None:
    place = TopicPartition(topic, 0)
    lines = b"".join(
        to_json(
            place,
            Record(
                b"k%d" % hour,
                json.dumps({"name": name, "hour": hour}).encode(),
                (),
                NOON + hour * 3_600_000,
            ),
        )
        for hour in hours
    )
    rookery("produce", topic, "--format", "json", data=lines)


@pytest.fixture(scope="module")
def topics(rookery: Rookery) -> list[str]:
    """Two topics whose rows take turns, hour by hour."""
    names = [rookery.topic("-c", "retention.ms=-1", "-p", "3") for _ in range(2)]
    _produce(rookery, names[0], [0, 2, 4], "even")
    _produce(rookery, names[1], [1, 3, 5], "odd")
    return names


def _lines(said: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_rows_are_printed_as_json_in_time_order(rookery: Rookery, topics: list[str]) -> None:
    lines = _lines(rookery("replay", *topics, "--json", "-q"))

    assert [json.loads(line["value"])["hour"] for line in lines] == [0, 1, 2, 3, 4, 5]
    assert [line["topic"] for line in lines] == topics * 3
    assert lines[1]["timestamp"] == "2026-01-01T13:00:00.000Z"
    assert lines[1]["key"] == "k1"
    assert lines[1]["lateness"] == 0


def test_fields_of_json_are_found(rookery: Rookery, topics: list[str]) -> None:
    lines = _lines(rookery("replay", *topics, "--decode", "json", "--format", "json", "-q"))

    assert [line["value"] for line in lines][:2] == [
        {"name": "even", "hour": 0},
        {"name": "odd", "hour": 1},
    ]


def test_rows_are_printed_as_a_table(rookery: Rookery, topics: list[str]) -> None:
    said = rookery("replay", *topics, "--decode", "json", "-q").decode().splitlines()

    assert said[0].split() == [
        "key", "name", "hour", "topic", "partition", "offset", "timestamp", "lateness",
    ]  # fmt: skip
    assert [line.split()[1:3] for line in said[1:3]] == [["even", "0"], ["odd", "1"]]
    assert len(said) == 7


@pytest.mark.parametrize(
    ("args", "hours"),
    [
        (["--from", "2026-01-01T14:00:00Z"], [2, 3, 4, 5]),
        (["--from", "2026-01-01T14:00:00Z", "--to", "2026-01-01T17:00:00Z"], [2, 3, 4]),
        (["--from", "end"], []),
        (["--from", "1h"], []),
        (["--max", "2"], [0, 1]),
    ],
)
def test_time_and_offset_ranges_limit_a_replay(
    rookery: Rookery, topics: list[str], args: list[str], hours: list[int]
) -> None:
    lines = _lines(rookery("replay", *topics, *args, "--json", "-q"))

    assert [json.loads(line["value"])["hour"] for line in lines] == hours


def test_rows_are_written_to_a_parquet_file(
    rookery: Rookery, topics: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    args = ["--decode", "json", "--schema", "hour long", "--format", "parquet", "-o", str(path)]
    said = rookery.json("replay", *topics, *args)

    table = parquet.read_table(path)
    assert said == {"rows": 6, "late": 0, "file": str(path)}
    assert table.column("value").to_pylist() == [{"hour": hour} for hour in range(6)]


def test_rows_are_written_as_an_arrow_stream(rookery: Rookery, topics: list[str]) -> None:
    said = rookery("replay", topics[0], "--format", "arrow", "-q")

    with pa.ipc.open_stream(io.BytesIO(said)) as stream:
        table = stream.read_all()
    assert table.num_rows == 3
    assert table.schema.field("value").type == pa.string()


def test_empty_replay_writes_a_valid_file(
    rookery: Rookery, topics: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "none.parquet"
    rookery("replay", *topics, "--from", "end", "--format", "parquet", "-o", str(path), "-q")

    assert parquet.read_table(path).num_rows == 0


def test_each_topic_can_have_its_own_decoder(rookery: Rookery, topics: list[str]) -> None:
    args = ["--decode", "json", "--decode", f"{topics[1]}=utf8", "--json", "-q"]
    lines = _lines(rookery("replay", *topics, *args))

    # Of different types, each topic has a field of its own.
    assert lines[0]["value"] == {topics[0]: {"name": "even", "hour": 0}, topics[1]: None}
    assert lines[1]["value"] == {topics[0]: None, topics[1]: '{"name": "odd", "hour": 1}'}


def test_progress_is_reported_at_the_end(rookery: Rookery, topics: list[str]) -> None:
    done = rookery.run("replay", *topics, "--json")

    assert done.stderr.decode().strip().endswith("6 rows")


def test_replay_works_without_a_broker(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder, flags=["--durability", "os"]) as broker:
        rookery = Rookery(broker.bootstrap)
        topic = f"alone-{secrets.token_hex(4)}"
        rookery("topics", "create", topic, "-p", "2", "-c", "retention.ms=-1")
        _produce(rookery, topic, [0, 1, 2], "alone")
        broker.stop()

    nowhere = Rookery("127.0.0.1:1")
    done = nowhere.run("replay", topic, "--data", str(folder), "--json", "-q")

    assert done.returncode == 0, done.stderr
    assert [json.loads(line["value"])["hour"] for line in _lines(done.stdout)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--from", "7"], 2, "--from: '7' is an offset"),
        (["--to", "tomorrow"], 2, "--to"),
        (["--decode", "xml"], 2, "--decode"),
        (["--decode", "other=json"], 2, "not among the topics"),
        (["--format", "parquet", "-o", "/no/such/folder/x"], 2, "--output"),
        (["--speed", "0"], 2, "--speed"),
    ],
)
def test_invalid_arguments_are_reported(
    rookery: Rookery, topics: list[str], args: list[str], code: int, words: str
) -> None:
    done = rookery.run("replay", *topics, *args)

    assert done.returncode == code
    assert words in done.stderr.decode()


def test_unknown_topic_is_reported(rookery: Rookery) -> None:
    done = rookery.run("replay", "no-such-topic", "--timeout", "5")

    assert done.returncode == 1
    assert "no-such-topic" in done.stderr.decode()


def test_the_help_has_an_example(rookery: Rookery) -> None:
    done = rookery.run("replay", "--help")

    assert done.returncode == 0
    assert "rookery replay orders payments --from 1h" in done.stdout.decode()


def test_types_are_inferred_from_json_values() -> None:
    schema = fields_of([b'{"a": 1, "b": null}', b"no json", b"[1]", b'{"c": [{"d": 1.5}]}'])

    assert schema is not None
    assert [(field.name, str(field.type)) for field in schema] == [
        ("a", "int64"),
        ("b", "string"),
        ("c", "list<item: struct<d: double>>"),
    ]
    assert fields_of([b"text", b""]) is None
    with pytest.raises(ConfigError, match="contradict"):
        fields_of([b'{"a": 1}', b'{"a": {"b": 2}}'])
