"""`rookery acls` with a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from rookery.testing.kafka import KafkaServer
from tests.cli.running import Rookery

_numbers = count(1)


@pytest.fixture
def commands(kafka: KafkaServer) -> Rookery:
    return Rookery(kafka.bootstrap)


@pytest.fixture
def principal(commands: Rookery) -> Iterator[str]:
    """A principal without rules; the ones that a test adds are removed."""
    name = f"User:jackdaw-{next(_numbers)}"
    yield name
    commands("acls", "remove", name)


def rule(principal: str, **changed: str) -> dict[str, str]:
    fields = {
        "permission": "allow",
        "principal": principal,
        "host": "*",
        "operation": "read",
        "resource": "topic",
        "pattern": "literal",
        "name": "birds",
    }
    return fields | changed


def test_rules_are_added_listed_and_removed(commands: Rookery, principal: str) -> None:
    add = ["acls", "add", principal, "--topic", "birds", "--group", "watchers"]
    add += ["--operation", "read"]
    both = [rule(principal), rule(principal, resource="group", name="watchers")]

    planned = commands.json(*add, "--dry-run")
    assert commands.json("acls", "list", principal) == []
    added = commands.json(*add)
    again = commands.json(*add)
    listed = commands.json("acls", "list", principal)
    kept = commands.json("acls", "remove", principal, "--topic", "birds", "--dry-run")
    removed = commands.json("acls", "remove", principal, "--topic", "birds")

    assert planned == {"added": both, "dry_run": True}
    assert added == {"added": both, "dry_run": False}
    assert again["added"] == []
    assert listed == both
    assert kept["removed"] == removed["removed"] == [both[0]]
    assert commands.json("acls", "list", principal) == [both[1]]


def test_rules_that_cover_a_name_are_listed(commands: Rookery, principal: str) -> None:
    add = ["acls", "add", principal, "--operation", "write"]
    commands(*add, "--topic", "bir", "--prefix", "--deny", "--host", "10.0.0.1")
    commands(*add, "--topic", "birds")
    commands(*add, "--topic", "bees")

    listed = commands.json("acls", "list", principal, "--topic", "birds")
    prefixes = commands.json("acls", "list", principal, "--prefix")
    table = commands("acls", "list", principal).decode()

    prefix = rule(
        principal, operation="write", pattern="prefixed", name="bir", permission="deny",
        host="10.0.0.1",
    )  # fmt: skip
    assert listed == [rule(principal, operation="write"), prefix]
    assert prefixes == [prefix]
    assert "prefixed" in table
    assert "bees" in table


def check(commands: Rookery, principal: str, *more: str) -> tuple[int, Any]:
    done = commands.run("acls", "check", principal, "--topic", "birds", "--json", *more)
    [row] = json.loads(done.stdout)
    return done.returncode, row


def test_a_permission_is_explained_by_its_rule(commands: Rookery, principal: str) -> None:
    commands("acls", "add", principal, "--topic", "bir", "--prefix", "--operation", "read")
    commands(
        "acls", "add", principal, "--topic", "birds", "--operation", "read", "--deny",
        "--host", "10.0.0.1",
    )  # fmt: skip

    allowed = check(commands, principal, "--operation", "describe")
    denied = check(commands, principal, "--operation", "read", "--host", "10.0.0.1")
    missing = check(commands, principal, "--operation", "write")
    super_user = check(commands, principal, "--operation", "write", "--super-user", principal)
    text = commands("acls", "check", principal, "--topic", "birds", "--operation", "read")

    assert allowed[0] == 0
    assert allowed[1]["rule"] == rule(principal, pattern="prefixed", name="bir")
    assert denied[0] == 1
    assert denied[1]["rule"] == rule(principal, permission="deny", host="10.0.0.1")
    assert missing == (1, missing[1] | {"allowed": False, "rule": None})
    assert super_user[0] == 0
    assert b"allowed; a rule allows it: ALLOW User:jackdaw" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["add", "User:rook", "--topic", "birds"], b"--operation"),
        (["add", "User:rook", "--operation", "read"], b"--topic"),
        (["add", "User:rook", "--topic", "b", "--operation", "cluster-action"], b"does not exist"),
        (["add", "rook", "--topic", "b", "--operation", "read"], b"Type:name"),
        (["remove"], b"--all"),
        (["check", "User:rook", "--operation", "read"], b"--topic"),
        (["check", "User:rook", "--cluster", "--operation", "alter", "--host", "x"], b"--host"),
    ],
)
def test_unusable_arguments_are_refused(
    commands: Rookery, words: list[str], message: bytes
) -> None:
    done = commands.run("acls", *words)

    assert done.returncode == 2
    assert message in done.stderr
