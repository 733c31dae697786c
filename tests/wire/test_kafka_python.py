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

from rookery.errors import ErrorCode
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis, kafka_apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Api, Message
from rookery.wire.messages.api_versions import API_VERSIONS

SEEDS = 12
SIDES = ("request", "response")
# kafka-python has None for these two: operations that were not asked for, and an id in a tagged
# field that was not sent.
NOT_ASKED_FOR = -(2**31)
NO_ID = bytes(16)

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
        message: type[Message] = getattr(self.api, self.side)
        return message

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
    known = {field.name for field in theirs.fields.values() if field.for_version_q(version)}
    here = [name for name, field in ours.__fields__.items() if field.is_in(version)]
    names = {name: their_name(name, known) for name in here}
    assert set(names.values()) == known, type(ours)
    for name, other in names.items():
        where = f"{type(ours).__name__}.{name}"
        check_value(getattr(ours, name), getattr(theirs, other), version, where)
    assert plain_tags(theirs.unknown_tags) == (ours.unknown_tags or {})


def check_value(ours: Any, theirs: Any, version: int, where: str) -> None:
    if isinstance(ours, Message):
        check_fields(ours, theirs, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for mine, other in zip(ours, theirs, strict=True):
            check_value(mine, other, version, where)
    elif isinstance(theirs, set):
        assert theirs == bits(ours), where
    elif theirs is None:
        assert ours in (None, NOT_ASKED_FOR, NO_ID), where
    else:
        assert plain(theirs) == ours, where


def their_name(name: str, known: set[str]) -> str:
    """kafka-python mostly has one name for the operations that a cluster and a topic allow."""
    short = "authorized_operations"
    if name in {f"cluster_{short}", f"topic_{short}"} and name not in known:
        return short
    return name.removesuffix("_")


def plain(value: Any) -> Any:
    match value:
        case uuid.UUID():
            return value.bytes
        case memoryview():
            return bytes(value)
        case _:
            return value


def bits(ours: int) -> set[int]:
    """kafka-python reads the operations that someone may do as a set of bit numbers."""
    return {bit for bit in range(32) if ours & 1 << bit}


def plain_tags(tags: dict[str, bytes] | None) -> dict[int, bytes]:
    """kafka-python names a tag that it does not know after its number."""
    return {int(name.removeprefix("_")): value for name, value in (tags or {}).items()}


def tame(message: Message, version: int) -> Message:
    """Keep a random message inside what kafka-python can hold."""
    if isinstance(message, API_VERSIONS.response) and version > 0:
        # An error is answered in version 0 whatever was asked, and so it reads any error.
        message.error_code = ErrorCode.NONE
    for field in message.__fields__.values():
        value = getattr(message, field.name)
        if field.tag is not None:
            # It holds no unknown tags in a structure that stands in a tagged field.
            drop_unknown_tags(value)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Message):
                tame(item, version)
    return message


def drop_unknown_tags(value: Any) -> Any:
    if isinstance(value, list):
        for item in value:
            drop_unknown_tags(item)
    elif isinstance(value, Message):
        value.unknown_tags = None
        for name in value.__fields__:
            drop_unknown_tags(getattr(value, name))
    return value


def encode_theirs(decoded: Any) -> bytes:
    decoded._header = None  # it forgets to say so of a message that was read without its header
    return bytes(decoded.encode())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_message_agrees_with_kafka_python(case: Case) -> None:
    api, version, _, theirs = case
    assert theirs.flexible_version_q(version) == api.is_flexible(version)
    for seed in range(SEEDS):
        message = tame(random_message(case.ours, version, Random(seed)), version)
        wire = encode_bytes(message, version)

        decoded = theirs.decode(wire, version=version)
        rewritten = encode_theirs(decoded)

        check_fields(message, decoded, version)
        assert decode(case.ours, version, wire) == message
        # It reads tagged fields that it has no name for, and leaves them out when it writes.
        assert rewritten == encode_bytes(drop_unknown_tags(message), version)


def test_all_apis_except_the_listed_ones_are_compared() -> None:
    compared = {api.key for api, _, _, _ in CASES}
    left_out = set().union(*LEFT_OUT.values())
    assert len(compared) >= 50
    assert not compared & left_out
    assert compared | left_out == set(kafka_apis())


def test_no_version_of_kafka_python_is_omitted() -> None:
    for (key, side), theirs in THEIRS.items():
        first, last = theirs.valid_versions
        assert shared_versions(key, side) == range(first, last + 1), (apis()[key], side)
    assert {side for _, side in THEIRS} == set(SIDES)
    assert len(THEIRS) == 2 * len({key for key, _ in THEIRS})


def test_swapped_field_is_detected() -> None:
    api = apis()[12]
    sent = api.request(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    swapped = sent.replace(group_id="m", member_id="g")
    decoded = THEIRS[12, "request"].decode(encode_bytes(swapped, 4), version=4)
    with pytest.raises(AssertionError, match=r"\.(group|member)_id"):
        check_fields(sent, decoded, 4)
