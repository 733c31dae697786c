"""`rookery groups`: list, describe, delete and reset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer

from rookery.cli.commands.groups.reset import ResetGroup
from rookery.errors import ConfigError
from rookery.testing.kafka import KafkaServer
from tests.cli.running import Rookery

SECONDS = 20
_numbers = count(1)


@pytest.fixture
def group() -> str:
    """A group that no other test has."""
    return f"watchers-{next(_numbers)}"


@contextmanager
def member(rookery: Rookery, group: str, topic: str, total: int) -> Iterator[Consumer]:
    """A member that has read and committed a given number of records."""
    consumer = Consumer(
        {
            "bootstrap.servers": rookery.bootstrap,
            "group.id": group,
            "client.id": "binoculars",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        for _ in range(total):
            message = consumer.poll(SECONDS)
            assert message is not None, "nothing came"
            assert message.error() is None
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def birds(rookery: Rookery, *args: str, total: int = 10) -> str:
    """A topic with records in its first partition, a second apart, which are old and stay."""
    topic = rookery.topic("--config", "retention.ms=-1", *args)
    lines = "".join(
        f'{{"value": "{number}", "timestamp": {1_700_000_000_000 + 1000 * number}}}\n'
        for number in range(total)
    )
    rookery("produce", topic, "-p", "0", "--format", "json", data=lines.encode())
    return topic


def offsets(rookery: Rookery, group: str) -> dict[int, Any]:
    [row] = rookery.json("groups", "describe", group)
    return {offset["partition"]: offset["offset"] for offset in row["offsets"]}


def test_a_group_is_listed_described_and_deleted(rookery: Rookery, group: str) -> None:
    topic = birds(rookery, "-p", "2")
    with member(rookery, group, topic, 10):
        rookery("produce", topic, "-p", "0", data=b"one\ntwo\nthree\n")

        listed = [entry for entry in rookery.json("groups", "list") if entry["group"] == group]
        [row] = rookery.json("groups", "describe", group)

        assert listed == [
            {"group": group, "state": "Stable", "kind": "classic", "protocol_type": "consumer"}
        ]
        [group_member] = row["members"]
        assert (group_member["client"], group_member["host"], group_member["partitions"]) == (
            "binoculars",
            "127.0.0.1",
            2,
        )
        assert (row["state"], row["assignor"], row["lag"]) == ("Stable", "range", 3)
        first, second = row["offsets"]
        assert (first["offset"], first["end"], first["lag"]) == (10, 13, 3)
        assert (second["offset"], second["end"], second["lag"]) == (None, 0, None)
        assert first["member"] == group_member["member"]
        assert rookery.run("groups", "delete", group).returncode == 1

    assert rookery.json("groups", "delete", group) == {"deleted": [group]}
    assert rookery.run("groups", "describe", group).returncode == 1
    assert rookery.json("groups", "delete", group, "--if-exists") == {"deleted": []}


def test_groups_can_be_filtered_by_state(rookery: Rookery, group: str) -> None:
    topic = birds(rookery)
    with member(rookery, group, topic, 1):
        empty = rookery.json("groups", "list", "--state", "empty")
        stable = rookery.json("groups", "list", "--state", "stable", "--state", "dead")

    assert group not in [entry["group"] for entry in empty]
    assert group in [entry["group"] for entry in stable]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], 0),
        (["--to-latest"], 10),
        (["--to-offset", "3"], 3),
        (["--to-offset", "99"], 10),
        (["--shift-by", "-2"], 4),
        (["--shift-by", "-20"], 0),
        (["--shift-by", "20"], 10),
        (["--to-datetime", "2023-11-14T22:13:25Z"], 5),
        (["--by-duration", "1s"], 10),
        (["--by-duration", "P9999D"], 0),
    ],
)
def test_offsets_are_reset(rookery: Rookery, group: str, options: list[str], expected: int) -> None:
    topic = birds(rookery)
    with member(rookery, group, topic, 6):
        pass

    plan = rookery.json("groups", "reset", group, *options)
    assert plan["executed"] is False
    assert plan["offsets"] == [
        {"topic": topic, "partition": 0, "offset": 6, "new_offset": expected}
    ]
    assert offsets(rookery, group) == {0: 6}

    assert rookery.json("groups", "reset", group, *options, "--execute")["executed"] is True
    assert offsets(rookery, group) == {0: expected}


def test_only_some_partitions_are_reset(rookery: Rookery, group: str) -> None:
    topic = birds(rookery, "-p", "3")

    rookery("groups", "reset", group, "--topic", f"{topic}:0,2", "--to-latest", "--execute")

    assert offsets(rookery, group) == {0: 10, 2: 0}


def test_a_group_with_members_is_not_reset(rookery: Rookery, group: str) -> None:
    topic = birds(rookery)
    with member(rookery, group, topic, 6):
        done = rookery.run("groups", "reset", group, "--to-earliest", "--execute")

        assert done.returncode == 2
        assert b"1 members; stop them first" in done.stderr
        assert offsets(rookery, group) == {0: 6}


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--to-earliest"], b"has read nothing yet"),
        (["--topic", "{topic}:7", "--to-earliest"], b"has 1 partitions, but no 7"),
        (["--topic", "{topic}:x", "--to-earliest"], b"names no partitions"),
        (["--topic", "{topic}", "--by-duration", "soon"], b"--by-duration: 'soon' is not a span"),
        (["--topic", "{topic}", "--to-datetime", "12"], b"--to-datetime: '12' is not a time"),
        (["--topic", "{topic}"], b"is required"),
    ],
)
def test_invalid_offset_reset_is_refused(
    rookery: Rookery, group: str, options: list[str], hint: bytes
) -> None:
    topic = birds(rookery, total=1)

    done = rookery.run(
        "groups", "reset", group, *(option.format(topic=topic) for option in options)
    )

    assert done.returncode == 2
    assert hint in done.stderr


def test_time_spans_are_read_in_both_forms() -> None:
    def span(text: str) -> str:
        return ResetGroup(group="watchers", by_duration=text).position

    assert [span(text) for text in ("15m", "PT1H30M", "P1DT1S")] == ["15m", "5400s", "86401s"]
    for text in ("P", "PT", "1w", ""):
        with pytest.raises(ConfigError):
            span(text)


def test_readable_tables_are_printed(rookery: Rookery, group: str) -> None:
    topic = birds(rookery)
    with member(rookery, group, topic, 6):
        described = rookery("groups", "describe", group).decode()
        assert group in rookery("groups", "list").decode()

    assert "4 records behind" in described
    assert "binoculars" in described
    plan = rookery("groups", "reset", group, "--to-earliest").decode()
    assert "--execute does it" in plan
    assert "moved" in rookery("groups", "reset", group, "--to-earliest", "--execute").decode()


def test_groups_are_managed_on_a_real_kafka(kafka: KafkaServer, group: str) -> None:
    rookery = Rookery(kafka.bootstrap)
    topic = birds(rookery)
    with member(rookery, group, topic, 6):
        [row] = rookery.json("groups", "describe", group)
        assert (row["state"], row["lag"], len(row["members"])) == ("Stable", 4, 1)

    rookery("groups", "reset", group, "--shift-by", "-1", "--execute")

    assert offsets(rookery, group) == {0: 5}
    assert rookery.json("groups", "delete", group) == {"deleted": [group]}
