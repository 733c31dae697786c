"""Journal files that were damaged unnoticed: an error, never wrong bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.broker import BrokerProcess
from tests.broker.raw import bytes_of
from tests.crash.killing import create_topic
from tests.faults.probe import LARGE, fetch, produce

TOPIC = "damaged"
IN_A_FILE = 3
FLIPPED = 1
CUT = 2 * IN_A_FILE - 1
COUNT = 2 * IN_A_FILE + 1


def value(number: int) -> bytes:
    """All are large, each with a file's place of its own, but for the last."""
    size = LARGE if number < COUNT - 1 else 10
    return (b"number %d " % number) * (size // 9)


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker over two journal files: a byte flipped in one, the end missing in the other."""
    broker = BrokerProcess(tmp_path / "data")
    with broker:
        create_topic(broker.bootstrap, TOPIC)
        for number in range(COUNT):
            if number == IN_A_FILE:
                # Each life of a broker has files of its own.
                broker.stop()
                broker.start()
            assert produce(broker.port, TOPIC, value(number)).base_offset == number
        broker.stop()
        first, second = sorted((tmp_path / "data" / "journal").iterdir())
        data = bytearray(first.read_bytes())
        data[data.index(b"number %d" % FLIPPED) + LARGE // 2] ^= 1
        first.write_bytes(data)
        second.write_bytes(second.read_bytes()[:-7])
        broker.start()
        yield broker


def test_undamaged_records_stay_readable(damaged: BrokerProcess) -> None:
    for number in range(COUNT):
        got = fetch(damaged.port, TOPIC, number, partition_max_bytes=1)
        if number in {FLIPPED, CUT}:
            assert got.error_code is ErrorCode.CORRUPT_MESSAGE, number
            assert bytes_of(got) == b""
        else:
            assert (got.error_code, got.high_watermark) == (ErrorCode.NONE, COUNT), number
            assert value(number) in bytes_of(got)

    # It lives, and continues where it was.
    assert produce(damaged.port, TOPIC, b"after").base_offset == COUNT
    assert "Traceback" not in damaged.words()


@pytest.mark.parametrize("bad", [FLIPPED, CUT])
def test_reader_gets_records_before_the_damage(damaged: BrokerProcess, bad: int) -> None:
    start = bad - 1

    got = fetch(damaged.port, TOPIC, start, partition_max_bytes=10 * LARGE)

    # What it asks for reaches into the damage; what is whole must not be held back by it.
    assert got.error_code is ErrorCode.NONE
    assert value(start) in bytes_of(got)
    assert value(bad)[:100] not in bytes_of(got)
