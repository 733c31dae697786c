"""`rookery segment close` while a broker runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.storage import Broker, run


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)
    folder = tmp_path / "data"
    made = Broker(folder, ["--caretaker", "off"], ["--data", str(folder)])
    with made.process:
        yield made


def test_few_records_are_closed_into_a_segment_immediately(broker: Broker, tmp_path: Path) -> None:
    values = broker.produce("birds", 5)

    first = run("segment", "close", "birds", *broker.where, "--json")
    second = run("segment", "close", "birds", *broker.where)

    assert first.returncode == 0, first.stderr.decode()
    [closed] = json.loads(first.stdout)
    [segment] = closed["segments"]
    assert (closed["topic"], closed["partition"], closed["open_from"]) == ("birds", 0, None)
    assert (segment["base_offset"], segment["end_offset"]) == (0, 5)
    path = tmp_path / "data" / "store" / segment["key"]
    assert path.stat().st_size == segment["bytes"]
    assert second.stdout.decode() == "birds-0: nothing to close\n"
    assert list(broker.consume("birds").values()) == values
    assert broker.fsck()[0] == 0

    more = broker.produce("birds", 2)
    third = run("segment", "close", "birds", "--partition", "0", *broker.where)

    assert third.stdout.decode().startswith("birds-0: offsets 5 to 6, ")
    assert list(broker.consume("birds").values()) == values + more


def test_missing_topic_or_partition_is_named(broker: Broker) -> None:
    broker.produce("birds", 1)

    topic = run("segment", "close", "fish", *broker.where)
    partition = run("segment", "close", "birds", "--partition", "7", *broker.where)

    assert (topic.returncode, partition.returncode) == (2, 2)
    assert "there is no topic 'fish'" in topic.stderr.decode()
    assert "topic birds has no partition 7; it has 1" in partition.stderr.decode()
