"""`rookery produce`: lines of input become records."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from rookery.cli.input import lines_of
from rookery.cli.output.lines import from_json, from_text, to_json
from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from tests.cli.running import Rookery
from tests.clients.peers import stored_codecs

PLACE = TopicPartition("birds", 3)


def test_lines_become_records(rookery: Rookery) -> None:
    topic = rookery.topic()

    said = rookery.json("produce", topic, "-H", "from=cli", "-k", ":", data=b"a:1\nb:2\r\n3\n4")

    rows = [json.loads(line) for line in rookery("consume", topic, "--json").splitlines()]
    assert said["records"] == 4
    assert [(row["key"], row["value"]) for row in rows] == [
        ("a", "1"), ("b", "2"), (None, "3"), (None, "4")
    ]  # fmt: skip
    assert all(row["headers"] == [{"name": "from", "value": "cli"}] for row in rows)


def test_file_of_many_lines_is_produced(rookery: Rookery, tmp_path: Path) -> None:
    topic, file = rookery.topic(), tmp_path / "lines"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(50_000)))

    rookery("produce", topic, "--file", str(file))

    assert rookery("consume", topic) == file.read_bytes()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_records_are_compressed_with_the_chosen_codec(rookery: Rookery, codec: str) -> None:
    topic, data = rookery.topic(), b"the same line again\n" * 1000

    rookery("produce", topic, "-z", codec, data=data)

    assert rookery("consume", topic) == data
    assert stored_codecs(rookery.bootstrap, topic) == {codec}


@pytest.mark.parametrize("flags", [("--acks", "0"), ("--acks", "1"), ("--no-idempotence",)])
def test_every_level_of_acknowledgement_is_accepted(
    rookery: Rookery, flags: tuple[str, ...]
) -> None:
    topic = rookery.topic()

    rookery("produce", topic, *flags, data=b"one\ntwo\n")

    assert rookery("consume", topic, "--follow", "-n", "2") == b"one\ntwo\n"


def test_a_partition_can_be_chosen(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "4")

    rookery("produce", topic, "-p", "2", data=b"here\n")

    assert rookery("consume", topic, "-p", "2") == b"here\n"
    assert rookery.run("produce", topic, "-p", "9", data=b"x\n").returncode == 1


def test_consumed_json_can_be_produced_again(rookery: Rookery) -> None:
    first, second = rookery.topic(), rookery.topic()
    lines = b"".join(
        to_json(PLACE, record)
        for record in (
            Record(b"k", b"v", (("h", b"1"), ("h", None)), 1_700_000_000_000),
            Record(None, None, (), 1_700_000_000_001),
            Record(b"\xff\x00", "Plzeň".encode(), (("b", b"\xfe"),), 1_700_000_000_002),
        )
    )

    rookery("produce", first, "--format", "json", data=lines)
    exported = rookery("consume", first, "--format", "json")
    rookery("produce", second, "--format", "json", data=exported)

    def content(lines: bytes) -> list[Record]:
        return [from_json(line) for line in lines.splitlines()]

    assert content(rookery("consume", second, "--json")) == content(lines)


def test_typed_line_is_sent_before_the_next_line(rookery: Rookery) -> None:
    topic = rookery.topic()
    with subprocess.Popen(rookery.command("produce", topic), stdin=subprocess.PIPE) as typing:
        assert typing.stdin is not None
        typing.stdin.write(b"first\n")
        typing.stdin.flush()

        seen = rookery("consume", topic, "--follow", "-n", "1")
        typing.stdin.close()

    assert seen == b"first\n"
    assert typing.returncode == 0


def test_interrupt_ends_produce_quietly_and_keeps_sent_records(rookery: Rookery) -> None:
    topic = rookery.topic()
    with subprocess.Popen(
        rookery.command("produce", topic), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as typing:  # fmt: skip
        assert typing.stdin is not None
        assert typing.stderr is not None
        typing.stdin.write(b"first\n")
        typing.stdin.flush()
        assert rookery("consume", topic, "--follow", "-n", "1") == b"first\n"
        typing.send_signal(signal.SIGINT)
        said = typing.stderr.read()

    assert typing.returncode == 130
    assert said == b""


def test_oversized_record_is_refused_with_the_option_to_set(rookery: Rookery) -> None:
    topic, data = rookery.topic("-c", "max.message.bytes=4000000"), b"x" * 2_000_000

    done = rookery.run("produce", topic, data=data)

    assert done.returncode == 1
    assert b"--max-request-bytes" in done.stderr
    said = rookery.json("produce", topic, "--max-request-bytes", "3M", data=data)
    assert said["records"] == 1


def test_invalid_arguments_are_refused(rookery: Rookery) -> None:
    topic = rookery.topic()

    bad = rookery.run("produce", topic, "--format", "json", data=b'{"value": \n')
    missing = rookery.run("produce", topic, "--file", "/no/such/file")
    unknown = rookery.run("produce", topic, "-z", "brotli")

    assert (bad.returncode, missing.returncode, unknown.returncode) == (2, 2, 2)
    assert b"not a record in JSON" in bad.stderr
    assert b"No such file" in missing.stderr


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[]", "must be an object"),
        (b"1", "must be an object"),
        (b"", "Expecting value"),
        (b'{"id": 1}', "unknown field id"),
        (b'{"value": "v", "Key": "k", "ts": 5}', "unknown fields Key, ts"),
        (b"{}", "value or value_base64 is missing"),
        (b'{"key": "k"}', "value or value_base64 is missing"),
        (b'{"value": "v", "value_base64": "dg=="}', "both value and value_base64"),
        (b'{"value": "v", "value": "w"}', "value occurs twice"),
        (b'{"value_base64": "?"}', "base64"),
        (b'{"value_base64": 5}', "value_base64 must be text"),
        (b'{"value": "v", "headers": [1]}', "a header must be an object"),
        (b'{"value": "v", "headers": {"a": "b"}}', "headers must be a list"),
        (b'{"value": "v", "headers": [{"name": "n", "val": "x"}]}', "unknown field val"),
        (b'{"value": "v", "headers": [{"value": "x"}]}', "name"),
        (b'{"value": "v", "timestamp": "x"}', "timestamp must be a whole number"),
        (b'{"value": "v", "timestamp": 1.5}', "timestamp must be a whole number"),
    ],
)
def test_invalid_json_records_are_refused(line: bytes, why: str) -> None:
    with pytest.raises(ConfigError, match=f'not a record.*{why}.*expected.*"value":'):
        from_json(line)


def test_null_value_in_json_is_a_tombstone() -> None:
    assert from_json(b'{"key": "k", "value": null}') == Record(b"k", None)


def test_a_line_of_an_unknown_shape_is_refused_by_its_number(rookery: Rookery) -> None:
    topic = rookery.topic()

    bad = rookery.run("produce", topic, "--format", "json", data=b'{"value": "v"}\n{"id":1}\n')

    assert bad.returncode == 2
    assert b"line 2: not a record" in bad.stderr
    assert b"1 record before it was sent" in bad.stderr
    assert rookery("consume", topic) == b"v\n"


def test_json_values_are_stored_as_json_text() -> None:
    assert from_json(b'{"key": 7, "value": {"a": [1]}}') == Record(b"7", b'{"a": [1]}')


@pytest.mark.parametrize(
    ("line", "separator", "key", "value"),
    [
        (b"a:b:c", b":", b"a", b"b:c"),
        (b":b", b":", b"", b"b"),
        (b"ab", b":", None, b"ab"),
        (b"a:b", None, None, b"a:b"),
    ],
)
def test_keys_are_split_from_text_lines(
    line: bytes, separator: bytes | None, key: bytes | None, value: bytes
) -> None:
    assert from_text(line, separator, ()) == Record(key, value)


@pytest.mark.parametrize(
    "parts",
    [
        [b"one\ntwo\n"],
        [b"o", b"n", b"e", b"\n", b"t", b"wo"],
        [b"one\r\n", b"two\r\n"],
        [b"one", b"\ntwo", b"\n"],
    ],
)
async def test_lines_are_reassembled_from_any_chunks(parts: list[bytes]) -> None:
    reading, writing = os.pipe()

    async def feed() -> None:
        for part in parts:
            os.write(writing, part)
            await asyncio.sleep(0)
        os.close(writing)

    feeding = asyncio.create_task(feed())
    lines_read = [line async for lines in lines_of(reading) for line in lines]
    await feeding
    os.close(reading)

    assert lines_read == [b"one", b"two"]
