"""Most APIs and versions, both ways, against kafka-python: a third reading of Kafka's definitions.

Its codec is made from Kafka's own JSON files and shares no code with ours nor with kio. Here the
bytes must be the same after a way through its objects, which kio cannot promise: that one changes
dates, durations and ids that are zero.
"""

from __future__ import annotations

import pkgutil
import uuid
from importlib import import_module
from random import Random
from typing import Any, NamedTuple

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Api, Message

SEEDS = 12
SIDES = ("request", "response")

# What clients in Python have no use for: kafka-python 3.0.12 has no classes for these keys.
LEFT_OUT = {
    "delegation tokens": {38, 39, 40, 41},
    "spoken between controllers and brokers only": {
        *(52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73),
        *(80, 81, 82, 83, 84, 85, 86, 87),
    },
    "removal of a broker from the cluster": {64},
    "groups of KIP-848": {68, 69},
    "client metrics of KIP-714": {71, 72},
    "share groups": {76, 77, 78, 79, 90, 91, 92},
    "Streams groups": {88, 89},
}


class Case(NamedTuple):
    """One side of one version of an API, in their words and in ours."""

    api: Api[Any, Any]
    version: int
    side: str
    theirs: Any

    @property
    def ours(self) -> type[Message]:
        found: type[Message] = getattr(self.api, self.side)
        return found

    def __str__(self) -> str:
        return f"{self.api.name}-{self.version}-{self.side}"


def their_classes() -> dict[tuple[int, str], Any]:
    """All messages that kafka-python has, by key and side."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and not module.name.endswith("generate_stubs"):
            import_module(module.name)
    # A class for one version is made on demand below the one for all of them.
    return {(cls.API_KEY, cls.type): cls for cls in ApiMessage.__subclasses__()}


THEIRS = their_classes()


def shared_versions(key: int, side: str) -> range:
    """The versions that both know; below its stated range kafka-python only guesses."""
    first, last = THEIRS[key, side].valid_versions
    ours = apis()[key].versions
    return range(max(first, ours.start), min(last + 1, ours.stop))


CASES = [
    Case(apis()[key], version, side, THEIRS[key, side])
    for key, side in sorted(THEIRS)
    for version in shared_versions(key, side)
]


def check_fields(ours: Message, theirs: Any, version: int) -> None:
    """The same value under the same name: bytes alone would not show two fields swapped."""
    names = {field.name for field in theirs.fields.values() if field.for_version_q(version)}
    here = {name for name, field in ours.__fields__.items() if field.is_in(version)}
    assert {their_name(name) for name in here} == names, type(ours)
    for name in here:
        where = f"{type(ours).__name__}.{name}"
        check_value(getattr(ours, name), getattr(theirs, their_name(name)), version, where)
    assert plain_tags(theirs.unknown_tags) == (ours.unknown_tags or {})


def check_value(ours: Any, theirs: Any, version: int, where: str) -> None:
    if isinstance(ours, Message):
        check_fields(ours, theirs, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for mine, other in zip(ours, theirs, strict=True):
            check_value(mine, other, version, where)
    else:
        assert plain(theirs) == ours, where


def their_name(name: str) -> str:
    return name.removesuffix("_")


def plain(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case memoryview():
            return bytes(value)
    return value


def plain_tags(tags: dict[str, bytes] | None) -> dict[int, bytes]:
    """kafka-python names a tag that it does not know after its number."""
    return {int(name.removeprefix("_")): value for name, value in (tags or {}).items()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_message_agrees_with_kafka_python(case: Case) -> None:
    api, version, _, theirs = case
    assert theirs.flexible_version_q(version) == api.is_flexible(version)
    for seed in range(SEEDS):
        message = random_message(case.ours, version, Random(seed))
        wire = encode_bytes(message, version)

        decoded = theirs.decode(wire, version=version)
        rewritten = bytes(decoded.encode())

        check_fields(message, decoded, version)
        assert rewritten == wire
        assert decode(case.ours, version, rewritten) == message


def test_all_but_the_apis_that_are_left_out_are_compared() -> None:
    compared = {api.key for api, _, _, _ in CASES}
    left_out = set().union(*LEFT_OUT.values())
    assert len(compared) >= 50
    assert not compared & left_out
    assert compared | left_out == set(apis())


def test_no_version_of_theirs_is_left_out() -> None:
    for (key, side), theirs in THEIRS.items():
        first, last = theirs.valid_versions
        assert shared_versions(key, side) == range(first, last + 1), (apis()[key], side)
    assert {side for _, side in THEIRS} == set(SIDES)
    assert len(THEIRS) == 2 * len({key for key, _ in THEIRS})


def test_a_field_swapped_for_another_is_noticed() -> None:
    api = apis()[12]
    sent = api.request(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    swapped = sent.replace(group_id="m", member_id="g")
    decoded = THEIRS[12, "request"].decode(encode_bytes(swapped, 4), version=4)
    with pytest.raises(AssertionError, match="group_id|member_id"):
        check_fields(sent, decoded, 4)
