"""Keys and values as typed columns, and times that come from them; on a real Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

import rookery
from rookery.consumer.faults import Undecodable
from rookery.decode.open import open_decoder
from rookery.decode.port import DecoderSettings
from rookery.testing.kafkalogs import NOON, Logs, pack_rows

JSON = open_decoder("json", DecoderSettings(schema="n long, at timestamp"))


def sent(topics: Logs, stem: str, *values: bytes | None, headers: Sequence[Any] = ()) -> str:
    """Make a topic of one partition with these values, one millisecond after the other."""
    topic = topics.create(stem, 1)
    data: dict[str, Any] = {
        "key": pa.array([b"k%d" % n for n in range(len(values))], pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(range(NOON, NOON + len(values)), pa.timestamp("ms", "UTC")),
    }
    if headers:
        kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        data["headers"] = pa.array(headers, kind)
    topics.append(topic, {0: pack_rows(pa.record_batch(data))})
    return topic


def listed(table: pa.Table, name: str) -> list[Any]:
    return list(table[name].to_pylist())


def test_values_are_decoded_as_text_json_and_by_functions(topics: Logs) -> None:
    topic = sent(topics, "text", b'{"n": 1}', None, b'{"n": 2}')

    def lengths(column: pa.Array[Any]) -> pa.Array[Any]:
        compute: Any = pa.compute
        sizes: pa.Array[Any] = compute.binary_length(column)
        return sizes

    text = rookery.read(topics.bootstrap, topic, value="utf8", key="utf8").to_table()
    fields = rookery.read(topics.bootstrap, topic, value=JSON).to_table()
    counted = rookery.read(topics.bootstrap, topic, value=lengths).to_table()

    assert text["value"].to_pylist() == ['{"n": 1}', None, '{"n": 2}']
    assert text["key"].to_pylist() == ["k0", "k1", "k2"]
    assert fields["value"].to_pylist() == [{"n": 1, "at": None}, None, {"n": 2, "at": None}]
    assert counted["value"].to_pylist() == [8, None, 8]


def test_topics_can_have_their_own_decoders(topics: Logs) -> None:
    first, second = sent(topics, "own-a", b'{"n": 1}'), sent(topics, "own-b", b"text")

    table = rookery.read(
        topics.bootstrap,
        [first, second],
        value={first: JSON, second: "utf8"},
        columns=["value", "raw_value"],
    ).to_table()

    assert table["value"].to_pylist() == [
        {first: {"n": 1, "at": None}, second: None},
        {first: None, second: "text"},
    ]
    assert table["raw_value"].to_pylist() == [b'{"n": 1}', b"text"]


def test_undecodable_value_is_null_put_aside_or_raised(topics: Logs) -> None:
    topic = sent(topics, "bad", b"ok", b"\xff", b"fine")

    def read(**options: Any) -> rookery.OrderedStream:
        return rookery.read(topics.bootstrap, topic, value="utf8", **options)

    nulls = read(on_decode_error="null").to_table()
    [aside] = list(read(on_decode_error="side"))
    with read() as stream:
        before = next(stream)
        with pytest.raises(Undecodable, match="not UTF-8") as caught:
            next(stream)

    assert nulls["value"].to_pylist() == ["ok", None, "fine"]
    assert aside["value"].to_pylist() == ["ok", "fine"]
    assert aside.rejected is not None
    [rejected] = aside.rejected.to_pylist()
    assert (rejected["offset"], rejected["value"]) == (1, b"\xff")
    assert "not UTF-8" in rejected["reason"]
    assert before["value"].to_pylist() == ["ok"]
    assert caught.value.offset == 1


def test_the_time_of_a_row_can_be_in_its_value(topics: Logs) -> None:
    values = [b'{"n": %d, "at": "2026-01-01T12:00:%02dZ"}' % (n, n) for n in (5, 1, 9)]
    topic = sent(topics, "payload", *values, b"{}")
    other = sent(topics, "payload", b'{"n": 3, "at": "2026-01-01T12:00:03Z"}')

    table = rookery.read(
        topics.bootstrap, [topic, other], value=JSON, event_time="value.at"
    ).to_table()
    started = rookery.read(
        topics.bootstrap,
        [topic, other],
        value=JSON,
        event_time="value.n",
        start=datetime.fromtimestamp(0.003, UTC),
    ).to_table()

    assert [value["n"] for value in listed(table, "value")] == [3, 5, 1, 9, None]
    assert [lateness.total_seconds() for lateness in listed(table, "lateness")] == [0, 0, 4, 0, 0]
    assert [value["n"] for value in listed(started, "value")] == [3, 5, 9, None]


def test_the_time_of_a_row_can_be_in_a_header(topics: Logs) -> None:
    forms = [(NOON + 5).to_bytes(8, "big"), b"%d" % (NOON + 9), b"2026-01-01T12:00:01+00:00", b"?"]
    headers = [[{"key": "x", "value": b"0"}, {"key": "at", "value": form}] for form in forms]
    topic = sent(topics, "header", b"a", b"b", b"c", b"d", headers=[*headers])
    other = sent(topics, "header", b"e", headers=[[{"key": "at", "value": b"%d" % (NOON + 7)}]])

    table = rookery.read(topics.bootstrap, [topic, other], event_time="header:at").to_table()

    assert table["value"].to_pylist() == [b"a", b"e", b"b", b"c", b"d"]
