"""Every API and version, both ways, against kio, which shares no code with us."""

from __future__ import annotations

import dataclasses
import datetime
import io
import pkgutil
import typing
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any

import kio.schema
import pytest
from kio.serial import entity_reader, entity_writer

from rookery.testing.messages import random_message
from rookery.wire.catalog import kafka_apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.message import Api, Message

SEEDS = 12

# Versions that Kafka 4 dropped and older clients still send; kio begins where Kafka 4 does. They
# are compared with the older codecs' own classes in tests/wire/messages.
BELOW_KIO = {
    (api.key, version)
    for api in kafka_apis().values()
    for version in api.versions
    if version < {0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2}.get(api.key, 0)
    or (version == 0 and api.key in {27, 29, 30, 31, 32, 34, 35, 38, 39, 40, 41})
}

CASES = [
    pytest.param(api, version, side, id=f"{api.name}-{version}-{side}")
    for api in kafka_apis().values()
    for version in api.versions
    for side in ("request", "response")
    if (api.key, version) not in BELOW_KIO
]


def file_of(api: Api[Any, Any]) -> str:
    name: str = api.request.__module__
    return name.rpartition(".")[2]


def kio_module(api: Api[Any, Any], version: int, side: str) -> ModuleType:
    return import_module(f"kio.schema.{file_of(api)}.v{version}.{side}")


def our_name(message: Message, name: str) -> str:
    """kio drops the unit from the names of times."""
    return name if name in message.__fields__ else f"{name}_ms"


def check_fields(ours: Message, theirs: Any) -> None:
    """The same value under the same name: bytes alone would not show two fields swapped."""
    for field in dataclasses.fields(theirs):
        name = our_name(ours, field.name)
        check_value(getattr(ours, name), getattr(theirs, field.name), f"{type(ours)}.{name}")


def check_value(ours: Any, theirs: Any, where: str) -> None:
    if dataclasses.is_dataclass(theirs):
        if ours is not None:  # None is how we hold a tagged structure that was not sent
            check_fields(ours, theirs)
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs), where
        for mine, other in zip(ours, theirs, strict=True):
            check_value(mine, other, where)
    else:
        assert plain(ours) in (plain(theirs), absent(theirs, ours)), where


def plain(value: Any) -> Any:
    match value:
        case memoryview():
            return bytes(value)
        case datetime.timedelta():
            return round(value / datetime.timedelta(milliseconds=1))
        case datetime.datetime():
            return round(value.timestamp() * 1000)
        case _:
            return getattr(value, "bytes", value)


def absent(theirs: Any, ours: Any) -> Any:
    """kio reads a zero uuid and the time -1 as None."""
    if theirs is None:
        return bytes(16) if isinstance(ours, bytes) else -1
    return plain(theirs)


def tame(message: Message, theirs: type, random: Random) -> Message:
    """Keep a random message inside what kio can hold: its dates and durations, no unknown tags."""
    message.unknown_tags = None
    for field in dataclasses.fields(theirs):
        name = our_name(message, field.name)
        kind = field.metadata.get("kafka_type", "")
        value = getattr(message, name)
        if kind == "datetime_i64":
            setattr(message, name, random.choice((0, 1_700_000_000_123)))
        elif kind == "timedelta_i64":
            setattr(message, name, random.randrange(10**12))
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Message):
                tame(item, structure_in(typing.get_type_hints(theirs)[field.name]), random)
    return message


def structure_in(hint: Any) -> type:
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return hint
    return next(structure_in(inner) for inner in typing.get_args(hint) if inner is not type(None))


@pytest.mark.parametrize(("api", "version", "side"), CASES)
def test_every_message_agrees_with_kio(api: Api[Any, Any], version: int, side: str) -> None:
    ours = getattr(api, side)
    theirs = getattr(kio_module(api, version, side), ours.__name__)
    read, write = entity_reader(theirs), entity_writer(theirs)
    assert bool(theirs.__flexible__) == api.is_flexible(version)
    for seed in range(SEEDS):
        random = Random(seed)
        message = tame(random_message(ours, version, random), theirs, random)
        wire = encode_bytes(message, version)

        decoded, size = read(wire, 0)
        rewritten = io.BytesIO()
        write(rewritten, decoded)

        assert size == len(wire)
        check_fields(message, decoded)
        back = decode(ours, version, rewritten.getvalue())
        check_fields(back, decoded)
        assert encode_bytes(back, version) == rewritten.getvalue()


def test_kio_has_no_api_unknown_to_us() -> None:
    known = {
        package.name
        for package in pkgutil.iter_modules(kio.schema.__path__)
        if package.ispkg and has_request(package.name)
    }
    assert {file_of(api) for api in kafka_apis().values()} == known


def test_kio_has_no_version_unknown_to_us() -> None:
    for api in kafka_apis().values():
        package = import_module(f"kio.schema.{file_of(api)}")
        versions = {int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)}
        assert versions <= set(api.versions), api


def has_request(name: str) -> bool:
    package = import_module(f"kio.schema.{name}")
    version = next(iter(pkgutil.iter_modules(package.__path__))).name
    inner = import_module(f"kio.schema.{name}.{version}")
    return any(module.name == "request" for module in pkgutil.iter_modules(inner.__path__))
