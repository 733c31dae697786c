"""`rookery consume`: start positions, formats, following and interrupts."""

from __future__ import annotations

import json
import signal
import subprocess
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer

from rookery.cli.output.lines import to_json
from rookery.cli.positions import parse_position
from rookery.errors import ConfigError
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from rookery.testing.clock import ManualClock
from rookery.testing.kafka import KafkaServer
from tests.cli.running import Rookery

NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


@pytest.fixture(scope="module")
def dated(rookery: Rookery) -> str:
    """A topic with a record at noon, and each of the two hours after it."""
    topic, place = rookery.topic("-c", "retention.ms=-1"), TopicPartition("x", 0)
    lines = b"".join(
        to_json(place, Record(b"k%d" % hour, b"v%d" % hour, (), NOON + hour * 3_600_000))
        for hour in range(3)
    )
    rookery("produce", topic, "--format", "json", data=lines)
    return topic


@pytest.mark.parametrize(
    ("start", "values"),
    [
        ("beginning", b"v0\nv1\nv2\n"),
        ("end", b""),
        ("1", b"v1\nv2\n"),
        ("2026-01-01T12:30:00Z", b"v1\nv2\n"),
        ("2026-01-01T15:00:00+01:00", b"v2\n"),
        ("1s", b""),
    ],
)
def test_consuming_starts_at_the_given_position(
    rookery: Rookery, dated: str, start: str, values: bytes
) -> None:
    assert rookery("consume", dated, "--from", start) == values


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--format", "value"), b"v0\nv1\n"),
        (("--format", "key-value"), b"k0\tv0\nk1\tv1\n"),
        (("--format", "key-value", "-k", " = "), b"k0 = v0\nk1 = v1\n"),
        (("--format", "raw"), b"v0v1"),
    ],
)
def test_consumed_records_are_printed_in_the_chosen_format(
    rookery: Rookery, dated: str, args: tuple[str, ...], text: bytes
) -> None:
    assert rookery("consume", dated, "--max", "2", *args) == text


def test_json_output_has_every_field_of_a_record(rookery: Rookery, dated: str) -> None:
    row = json.loads(rookery("consume", dated, "--json", "-n", "1"))

    assert row == {
        "topic": dated, "partition": 0, "offset": 0, "timestamp": NOON,
        "key": "k0", "value": "v0", "headers": [],
    }  # fmt: skip


def test_many_partitions_are_read_to_their_ends(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "8")
    lines = [b"%d:%d" % (number % 100, number) for number in range(10_000)]
    rookery("produce", topic, "-k", ":", data=b"\n".join(lines))

    got = rookery("consume", topic, "--format", "key-value", "-k", ":").splitlines()
    some = rookery("consume", topic, "--format", "key-value", "-k", ":", "-p", "0,2-7").splitlines()

    assert sorted(got) == sorted(lines)
    assert 0 < len(some) < len(got)


def test_follow_prints_records_as_they_arrive(rookery: Rookery) -> None:
    topic = rookery.topic()
    with subprocess.Popen(
        rookery.command("consume", topic, "--follow", "--max", "2"), stdout=subprocess.PIPE
    ) as reading:
        assert reading.stdout is not None
        rookery("produce", topic, data=b"one\n")
        assert reading.stdout.readline() == b"one\n"
        rookery("produce", topic, data=b"two\n")
        assert reading.stdout.readline() == b"two\n"

    assert reading.returncode == 0


def test_an_interrupt_ends_following_quietly(rookery: Rookery) -> None:
    topic = rookery.topic()
    rookery("produce", topic, data=b"one\n")
    with subprocess.Popen(
        rookery.command("consume", topic, "--follow"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"one\n"
        reading.send_signal(signal.SIGINT)
        said = reading.stderr.read()

    assert (reading.returncode, said) == (130, b"")


def test_closed_output_pipe_ends_consume_without_an_error(rookery: Rookery) -> None:
    topic = rookery.topic()
    rookery("produce", topic, data=b"a long line for a small pipe\n" * 100_000)
    with subprocess.Popen(
        rookery.command("consume", topic), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        reading.stdout.readline()
        reading.stdout.close()
        said = reading.stderr.read()

    assert said == b""


def test_committed_reading_ends_before_an_open_transaction(kafka: KafkaServer) -> None:
    rookery = Rookery(kafka.bootstrap)
    rookery("topics", "create", "cli-open", "-p", "1")
    rookery("produce", "cli-open", data=b"plain\n")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "cli-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("cli-open", b"in doubt")
    assert producer.flush(30) == 0

    committed = rookery("consume", "cli-open", "--committed")
    everything = rookery("consume", "cli-open")
    producer.abort_transaction(30)

    assert committed == b"plain\n"
    assert everything == b"plain\nin doubt\n"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("no-such-topic-here", "--timeout", "5"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("x", "--from", "yesterday"), 2, "--from"),
        (("x", "-p", "a"), 2, "names no partitions"),
        (("x", "-n", "0"), 2, "above 0"),
    ],
)
def test_invalid_arguments_are_reported(
    rookery: Rookery, args: tuple[str, ...], code: int, words: str
) -> None:
    done = rookery.run("consume", *args)

    assert done.returncode == code
    assert words in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_unknown_partition_is_reported(rookery: Rookery, dated: str) -> None:
    done = rookery.run("consume", dated, "-p", "0,7")

    assert done.returncode == 1
    assert b"has no partition 7: it has 0 to 0" in done.stderr


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", EARLIEST),
        ("end", LATEST),
        ("17", None),
        ("90s", NOON - 90_000),
        ("2h", NOON - 7_200_000),
        ("7d", NOON - 7 * 86_400_000),
        ("2026-01-01T12:00:00Z", NOON),
    ],
)
def test_start_positions_are_parsed(text: str, place: int | None) -> None:
    assert parse_position(text, ManualClock(NOON)) == place


def test_time_without_a_zone_is_local_time() -> None:
    local = datetime.fromtimestamp(NOON / 1000, UTC).astimezone().replace(tzinfo=None)

    assert parse_position(local.isoformat(), ManualClock(0)) == NOON


@pytest.mark.parametrize("text", ["", "-5", "5x", "beginnings", "2026-13-01"])
def test_invalid_start_positions_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--from"):
        parse_position(text, ManualClock(NOON))
