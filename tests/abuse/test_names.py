"""Names of topics that would be dangerous as paths."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from tests.abuse.attack import Attacker, header
from tests.abuse.batches import GOOD
from tests.abuse.targets import ADMITTED, Target
from tests.abuse.topics import code_of_produce, create, describe, make_topic, produce_request

pytestmark = ADMITTED

BAD = [
    "..",
    ".",
    "",
    "a/../../b",
    "../evil",
    "/etc/evil",
    "a/b",
    "a\\b",
    "%2e%2e",
    "a\0b",
    "\0",
    "a\nb",
    "a b",
    "a:b",
    "~",
    "$(evil)",
    "x" * 250,
    "x" * 32_000,
    "аbuse",  # noqa: RUF001 (the first letter is Cyrillic: that is the point)
    "abuse\u200b",
    "\uff0e\uff0e",
    "\u2025",
    "e\u0301vil",
    "🐦",
]
GOOD_NAMES = ["x" * 249, "...", ".a", "a.", "-", "--help", "_", "nul", "C", "a..b"]
JOIN_GROUP, INIT_PRODUCER_ID = 11, 22
# A session timeout, no member id, the type of the protocol and one protocol without metadata.
JOIN_BODY = struct.pack(">ihh8sih5si", 10_000, 0, 8, b"consumer", 1, 5, b"range", 0)
OWN = re.compile(r"~?[A-Za-z0-9._-]+")


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", BAD, ids=ascii)
def test_invalid_topic_name_is_refused_and_creates_no_file(target: Target, name: str) -> None:
    around = target.victim.folder.parent
    before = below(around)

    code = create(target.door, name)
    [described] = describe(target.door, [name], make=True)
    with Attacker(target.door) as line:
        answer = line.ask(produce_request(name, GOOD))

    assert code is ErrorCode.invalid_topic_exception
    assert described.error_code is ErrorCode.invalid_topic_exception
    assert answer is not None
    assert code_of_produce(answer) in {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.invalid_topic_exception,
    }
    # Journals and snapshots may come at any time; what a client says is never part of their names.
    assert all(set(Path(path).parts[:1]) <= {"data", "data.log"} for path in below(around) - before)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_valid_topic_name_creates_no_file(target: Target, name: str) -> None:
    make_topic(target.door, name)

    with Attacker(target.door) as line:
        answer = line.ask(produce_request(name, GOOD))

    assert answer is not None
    assert code_of_produce(answer) is ErrorCode.none
    assert not any(name in Path(path).parts for path in below(target.victim.folder.parent))


@pytest.mark.parametrize("name", [*BAD, "x" * 10_000], ids=ascii)
def test_group_and_transactional_id_create_no_file(target: Target, name: str) -> None:
    around = target.victim.folder.parent
    before = below(around)
    encoded = name.encode()
    text = struct.pack(">h", len(encoded)) + encoded
    with Attacker(target.door) as line:
        joined = line.ask(header(JOIN_GROUP, 0) + text + JOIN_BODY)
        begun = line.ask(header(INIT_PRODUCER_ID, 1) + text + struct.pack(">i", 60_000))
        line.ask_simple()

    for answer in (joined, begun):
        assert answer is not None
        assert b"\xff\xff" not in answer[4:6], "an error that was not expected"
    assert all(set(Path(path).parts[:1]) <= {"data", "data.log"} for path in below(around) - before)
    # No part of a path is a name that a client has chosen.
    assert all(
        OWN.fullmatch(part) for path in below(target.victim.folder) for part in Path(path).parts
    )


def test_names_that_differ_by_a_dot_collide(target: Target) -> None:
    make_topic(target.door, "same.name")

    assert create(target.door, "same_name") is ErrorCode.invalid_topic_exception


def test_files_are_named_independently_of_topics(target: Target) -> None:
    paths = below(target.victim.folder)

    assert paths
    for path in paths:
        assert all(OWN.fullmatch(part) for part in Path(path).parts), path
        assert "x" * 20 not in path
