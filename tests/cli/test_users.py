"""`rookery users` with our broker, and with a real Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.testing.kafka import KafkaServer
from tests.cli.running import Rookery

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def check_life_of_a_user(rookery: Rookery, file: Path) -> None:
    file.write_text("correct horse\n")
    add = ["users", "add", "jackdaw", "--new-password-file", str(file)]

    planned = rookery.json(*add, "--dry-run")
    assert rookery.json("users", "list", "jackdaw") == []
    added = rookery.json(*add, "--iterations", "8192")
    again = rookery.json(*add)
    [user] = rookery.json("users", "list", "jackdaw")
    kept = rookery.json("users", "remove", "jackdaw", "--dry-run")
    removed = rookery.json("users", "remove", "jackdaw")

    assert planned == {"user": "jackdaw", "mechanisms": BOTH, "existed": False, "dry_run": True}
    assert (added["existed"], again["existed"]) == (False, True)
    assert user["credentials"] == [
        {"mechanism": mechanism, "iterations": 4096} for mechanism in BOTH
    ]
    assert kept["removed"] == removed["removed"] == ["jackdaw"]
    assert rookery.json("users", "list", "jackdaw") == []


def test_a_user_is_added_changed_and_removed(rookery: Rookery, tmp_path: Path) -> None:
    check_life_of_a_user(rookery, tmp_path / "password")


def test_the_same_works_with_a_real_kafka(kafka: KafkaServer, tmp_path: Path) -> None:
    check_life_of_a_user(Rookery(kafka.bootstrap), tmp_path / "password")


def test_a_password_comes_from_standard_input(rookery: Rookery) -> None:
    text = rookery(
        "users", "add", "rook", "--new-password-file", "-", "--mechanisms", "scram-sha-512",
        data=b"secret\nignored\n",
    )  # fmt: skip

    assert text == b"rook: added (SCRAM-SHA-512)\n"
    assert b"SCRAM-SHA-512" in rookery("users", "list", "rook")
    assert rookery("users", "remove", "rook") == b"rook: removed\n"


def test_a_missing_user_stops_the_removal_of_others(rookery: Rookery) -> None:
    rookery("users", "add", "crow", "--new-password-file", "-", data=b"secret\n")

    refused = rookery.run("users", "remove", "crow", "dodo")
    removed = rookery("users", "remove", "crow", "dodo", "--if-exists")

    assert refused.returncode == 1
    assert b"dodo: no such user" in refused.stderr
    assert removed == b"crow: removed\ndodo: does not exist\n"


@pytest.mark.parametrize(
    ("flags", "data", "message"),
    [
        (["--mechanisms", "PLAIN"], b"secret\n", b"SCRAM-SHA-512"),
        (["--iterations", "100"], b"secret\n", b"4096 to 16384"),
        ([], b"\n", b"is empty"),
    ],
)
def test_unusable_credentials_are_refused(
    rookery: Rookery, flags: list[str], data: bytes, message: bytes
) -> None:
    done = rookery.run("users", "add", "magpie", "--new-password-file", "-", *flags, data=data)

    assert done.returncode == 2
    assert message in done.stderr


def answers(*given: str) -> Callable[[str], str]:
    left = iter(given)
    return lambda _prompt: next(left)


def test_a_prompt_asks_twice(rookery: Rookery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", answers("one", "two", "one", "one"))

    differing = rookery.run("users", "add", "magpie")

    assert differing.returncode == 2
    assert b"differ" in differing.stderr
    assert rookery("users", "add", "magpie", "--dry-run").startswith(b"magpie: would be added")
