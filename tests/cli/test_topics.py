from __future__ import annotations

from pathlib import Path

import pytest

from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from tests.cli.running import Rookery


def test_a_topic_lives_and_dies(rookery: Rookery) -> None:
    assert rookery.json("topics", "create", "birds", "-p", "3", "-c", "retention.ms=60000") == {
        "created": ["birds"]
    }
    (row,) = [one for one in rookery.json("topics", "list") if one["name"] == "birds"]
    assert (row["partitions"], row["replication_factor"], row["internal"]) == (3, 1, False)

    altered = rookery.json("topics", "alter", "birds", "-p", "5", "--delete-config", "retention.ms")
    assert len(altered["partitions"]) == 5
    assert altered["configs"] == {}

    assert rookery.json("topics", "delete", "birds") == {"deleted": ["birds"]}
    assert "birds" not in [one["name"] for one in rookery.json("topics", "list")]


def test_the_same_on_a_real_kafka(kafka: KafkaServer) -> None:
    rookery = Rookery(kafka.bootstrap)

    rookery("topics", "create", "cli-birds", "-p", "2", "-c", "retention.ms=60000")
    (row,) = rookery.json("topics", "describe", "cli-birds")

    assert len(row["partitions"]) == 2
    assert row["configs"]["retention.ms"] == "60000"
    assert rookery.json("topics", "delete", "cli-birds") == {"deleted": ["cli-birds"]}


def test_describe_tells_offsets_leaders_and_configs(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "2", "-c", "max.message.bytes=2000000")
    rookery("produce", topic, "-p", "1", data=b"one\ntwo\n")

    (row,) = rookery.json("topics", "describe", topic)

    assert [(part["start"], part["end"]) for part in row["partitions"]] == [(0, 0), (0, 2)]
    assert all(part["leader"] in part["isr"] for part in row["partitions"])
    assert row["configs"] == {"max.message.bytes": "2000000"}
    (full,) = rookery.json("topics", "describe", topic, "--configs")
    assert full["configs"]["cleanup.policy"] == "delete"


def test_tables_for_people(rookery: Rookery) -> None:
    topic = rookery.topic("-p", "2")

    assert topic in rookery("topics", "list").decode()
    described = rookery("topics", "describe", topic).decode()
    assert "partition" in described
    assert "leader" in described


def test_json_may_stand_before_the_name(rookery: Rookery) -> None:
    assert rookery("topics", "--json", "list").startswith(b"[")


def test_what_exists_or_is_gone_can_be_no_error(rookery: Rookery) -> None:
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
def test_mistakes_are_told_apart_by_exit_code_two(
    rookery: Rookery, args: tuple[str, ...], words: str
) -> None:
    done = rookery.run("topics", *args)

    assert done.returncode == 2
    assert words in done.stderr.decode()


def test_nobody_there_says_what_to_do() -> None:
    done = Rookery(f"{HOST}:{free_port()}").run("topics", "list", "--timeout", "0.5")

    assert done.returncode == 1
    assert b"`rookery broker` starts one" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_secured_kafka(kafka_secure: KafkaServer, tmp_path: Path) -> None:
    (password := tmp_path / "password").write_text(kafka_secure.users["alice"] + "\n")
    rookery = Rookery(kafka_secure.address("SASL_SSL"))
    login = ("--user", "alice", "--password-file", str(password))

    rows = rookery.json("topics", "list", *login, "--ca-file", str(kafka_secure.certificates.ca))

    assert isinstance(rows, list)
