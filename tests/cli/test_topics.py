"""`rookery topics`: create, list, describe, alter and delete."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from tests.cli.running import Rookery


def test_topic_is_created_listed_and_deleted(rookery: Rookery) -> None:
    assert rookery.json("topics", "create", "birds", "-p", "3", "-c", "retention.ms=60000") == {
        "created": ["birds"]
    }
    (row,) = [topic for topic in rookery.json("topics", "list") if topic["name"] == "birds"]
    assert (row["partitions"], row["replication_factor"], row["internal"]) == (3, 1, False)

    altered = rookery.json("topics", "alter", "birds", "-p", "5", "--delete-config", "retention.ms")
    assert len(altered["partitions"]) == 5
    assert altered["configs"] == {}

    assert rookery.json("topics", "delete", "birds") == {"deleted": ["birds"]}
    assert "birds" not in [topic["name"] for topic in rookery.json("topics", "list")]


def test_topics_are_managed_on_a_real_kafka(kafka: KafkaServer) -> None:
    rookery = Rookery(kafka.bootstrap)

    rookery("topics", "create", "cli-birds", "-p", "2", "-c", "retention.ms=60000")
    (row,) = rookery.json("topics", "describe", "cli-birds")

    assert len(row["partitions"]) == 2
    assert row["configs"]["retention.ms"] == "60000"
    assert rookery.json("topics", "delete", "cli-birds") == {"deleted": ["cli-birds"]}


def test_describe_shows_offsets_leaders_and_configs(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "2", "-c", "max.message.bytes=2000000")
    rookery("produce", topic, "-p", "1", data=b"one\ntwo\n")

    (row,) = rookery.json("topics", "describe", topic)

    assert [(part["start"], part["end"]) for part in row["partitions"]] == [(0, 0), (0, 2)]
    assert all(part["leader"] in part["isr"] for part in row["partitions"])
    assert row["configs"] == {"max.message.bytes": "2000000"}
    (full,) = rookery.json("topics", "describe", topic, "--configs")
    assert full["configs"]["cleanup.policy"] == "delete"


def test_readable_tables_are_printed(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "2")

    assert topic in rookery("topics", "list").decode()
    described = rookery("topics", "describe", topic).decode()
    assert "partition" in described
    assert "leader" in described


def test_json_flag_is_accepted_before_the_command_name(rookery: Rookery) -> None:
    assert rookery("topics", "--json", "list").startswith(b"[")


def test_existing_or_missing_topic_can_be_ignored(rookery: Rookery) -> None:
    topic = rookery.topic()

    again = rookery.run("topics", "create", topic)
    assert again.returncode == 1
    assert b"TOPIC_ALREADY_EXISTS" in again.stderr
    assert rookery.json("topics", "create", topic, "--if-not-exists") == {"created": []}
    gone = rookery.run("topics", "delete", "never-there")
    assert gone.returncode == 1
    assert b"there is no such topic" in gone.stderr
    assert rookery.json("topics", "delete", "never-there", "--if-exists") == {"deleted": []}


def test_a_dry_run_creates_nothing(rookery: Rookery) -> None:
    rookery("topics", "create", "only-a-try", "--dry-run")

    assert "only-a-try" not in [row["name"] for row in rookery.json("topics", "list")]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("alter", "birds"), "nothing to change"),
        (("create", "birds", "-p", "0"), "must be above 0"),
        (("create", "birds", "-c", "retention"), "name=value"),
        (("create", "birds", "--timeout", "-1"), "number of seconds"),
        (("list", "--password-file", "x"), "needs --user"),
        (("list", "--key-file", "x", "--tls"), "needs --cert-file"),
        (("list", "--user", "me", "--password-file", "/no/such/file"), "No such file"),
    ],
)
def test_invalid_arguments_exit_with_code_2(
    rookery: Rookery, args: tuple[str, ...], words: str
) -> None:
    done = rookery.run("topics", *args)

    assert done.returncode == 2
    assert words in done.stderr.decode()


def test_unreachable_broker_is_reported_with_a_remedy() -> None:
    done = Rookery(f"{HOST}:{free_port()}").run("topics", "list", "--timeout", "0.5")

    assert done.returncode == 1
    assert b"`rookery broker` starts one" in done.stderr
    assert b"Traceback" not in done.stderr


def test_topics_are_managed_on_a_secured_kafka(kafka_secure: KafkaServer, tmp_path: Path) -> None:
    (password := tmp_path / "password").write_text(kafka_secure.users["alice"] + "\n")
    rookery = Rookery(kafka_secure.address("SASL_SSL"))
    login = ("--user", "alice", "--password-file", str(password))

    rows = rookery.json("topics", "list", *login, "--ca-file", str(kafka_secure.certificates.ca))

    assert isinstance(rows, list)
