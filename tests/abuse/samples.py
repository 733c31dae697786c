"""Valid requests of every API and version, made by kio, and ways to damage them.

Where a length stands is found without knowing any layout: a request whose one value is longer
differs from the first one at the length of that value.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import types
import typing
import uuid
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from random import Random
from types import MappingProxyType
from typing import Any

from kio.serial import entity_reader, entity_writer
from kio.serial.errors import OutOfBoundValue
from kio.static.constants import EntityType

from rookery.wire.catalog import apis
from rookery.wire.codec import read_response
from rookery.wire.message import Message
from tests.abuse.attack import header, varint
from tests.abuse.batches import GOOD

TOPIC = "abuse"
REQUEST = EntityType.request
INT_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
# Values that make a request do something, and end at once.
SENSIBLE: dict[str, Any] = {
    "max_wait": datetime.timedelta(0),
    "min_bytes": 0,
    "acks": 1,
    "replication_factor": 1,
    "transactional_id": None,
    "num_partitions": 1,
    "assignments": (),
    "partition_max_bytes": 1024,
    "max_bytes": 1024,
    "validate_only": True,
    "resource_type": 2,
    "resource_name": TOPIC,
    "config_names": None,
    "configuration_keys": None,
    "cursor": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "client_software_name": "abuse",
    "client_software_version": "1",
}
PLAIN: dict[str | None, Any] = {
    "bytes": b"bytes",
    "records": GOOD,
    "bool": False,
    "timedelta_i32": datetime.timedelta(seconds=1),
    "timedelta_i64": datetime.timedelta(seconds=1),
}
BAD_SHORT = (-2, -1, 2**15 - 1)
BAD_LONG = (-2, -1, 10**7, 2**31 - 1, -(2**31))
BAD_COMPACT = (
    varint(0),
    varint(10**7),
    varint(2**31),
    varint(2**32 - 1),
    b"\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\xff\x01",
    b"\xff" * 9 + b"\x01",
    b"\xff" * 10,
)
HUGE_COMPACT = varint(2**31)
"""As `BAD_COMPACT` has it, too: 2^31 - 1 items, and one more for a list that exists."""
BAD_TAGS = (
    varint(10**7),
    varint(2**32 - 1),
    b"\xff" * 10,
    b"\x02\x05\x00\x05\x00",  # the same tag twice
    b"\x02\x06\x00\x05\x00",  # not in order
    b"\x01\x05" + varint(2**31),
    b"\x01" + b"\xff" * 5 + b"\x00",
    b"\x01\x00\x00",  # a known tag, if there is one, without its value
)

Path = tuple[str | int, ...]


class Sample:
    """One version of an API, its valid request, and ways to break that."""

    def __init__(
        self,
        folder: str,
        version: int,
        topic_id: uuid.UUID,
        sensible: Mapping[str, Any] = MappingProxyType(SENSIBLE),
    ) -> None:
        """Make the request.

        Args:
            folder: the name of the API's modules in kio.
            version: the version of the API.
            topic_id: the id of a topic that exists.
            sensible: values of fields; a field without one gets an element, a text or a zero.
        """
        module = import_module(f"kio.schema.{folder}.v{version}.request")
        self.kind: Any = next(
            value for value in vars(module).values() if getattr(value, "__type__", 0) is REQUEST
        )
        self.version = version
        self.is_flexible = bool(self.kind.__flexible__)
        self.key = int(self.kind.__api_key__)
        self.topic_id = topic_id
        self._sensible = sensible
        answers = import_module(f"kio.schema.{folder}.v{version}.response")
        self._read = entity_reader(
            getattr(answers, self.kind.__name__.replace("Request", "Response"))
        )
        self._write = entity_writer(self.kind)
        self.entity = self._make(self.kind)

    def header(self) -> bytes:
        return header(self.key, self.version, is_flexible=self.is_flexible)

    def body(self, entity: Any = None) -> bytes:
        out = io.BytesIO()
        self._write(out, entity or self.entity)
        return out.getvalue()

    def answer(self, frame: bytes) -> Any:
        """Read an answer.

        Kafka fills the times of a refused delegation token with -1, which kio cannot hold. Our own
        codec reads such an answer.
        """
        start = 5 if self.is_flexible and self.key != 18 else 4
        try:
            response, size = self._read(frame, start)
        except OutOfBoundValue:
            return read_response(apis()[self.key], self.version, frame)
        assert start + size == len(frame)
        return response

    # The valid request.

    def _make(self, kind: Any) -> Any:
        hints = typing.get_type_hints(kind)
        values = {
            field.name: self._value(field, hints[field.name]) for field in dataclasses.fields(kind)
        }
        return kind(**values)

    def _value(self, field: dataclasses.Field[Any], hint: Any) -> Any:
        if field.name in self._sensible:
            value = self._sensible[field.name]
            if value is not None or is_optional(hint):
                return value
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(choice for choice in typing.get_args(hint) if choice is not type(None))
        if typing.get_origin(hint) is tuple:
            [inner, *_] = typing.get_args(hint)
            return (self._one(field, inner),)
        return self._one(field, hint)

    def _one(self, field: dataclasses.Field[Any], hint: Any) -> Any:
        if dataclasses.is_dataclass(hint):
            return self._make(hint)
        kind = field.metadata.get("kafka_type")
        if kind == "string":
            return self._text(field.name)
        return self.topic_id if kind == "uuid" else PLAIN.get(kind, 0)

    def _text(self, name: str) -> str:
        if self.key == 20:  # DeleteTopics: the others need theirs
            return "gone"
        return TOPIC if "topic" in name or name.startswith("name") else "text"

    # Ways to break it.

    def mutations(self) -> Iterator[bytes]:
        """Yield broken requests, header and all."""
        head, body = self.header(), self.body()
        for cut in range(len(head + body)):
            yield (head + body)[:cut]
        for path, value, field in places(self.entity, ()):
            for changed in self._changed(body, path, value, field):
                yield head + changed
        if self.is_flexible:
            for tags in BAD_TAGS:
                yield head[:-1] + tags + body
                yield head + body[:-1] + tags
        for at in range(len(body)):
            for width in (2, 4):
                yield head + body[:at] + b"\x7f" + b"\xff" * (width - 1) + body[at + width :]

    def _changed(
        self, body: bytes, path: Path, value: Any, field: dataclasses.Field[Any]
    ) -> Iterator[bytes]:
        bits = INT_BITS.get(field.metadata.get("kafka_type", ""))
        if isinstance(value, (str, bytes, tuple)):
            if value:
                yield from self._lengths(body, self._with(path, twice(value)), value)
        elif isinstance(value, datetime.timedelta):
            for number in (-2, -1, 0, 2**31 - 1):
                yield self._with(path, datetime.timedelta(milliseconds=number))
        elif bits:
            for number in (-2, -1, 0, 2 ** (bits - 1) - 1):
                yield self._with(path, number)

    def _with(self, path: Path, value: Any) -> bytes:
        return self.body(replaced(self.entity, path, value))

    def huge_lengths(self) -> Iterator[bytes]:
        """Yield requests in each of which one list, text or byte string seems to have no end."""
        head, body = self.header(), self.body()
        for path, value, _ in places(self.entity, ()):
            if isinstance(value, (str, bytes, tuple)) and value:
                at, width = self._length_of(body, self._with(path, twice(value)), value)
                size = HUGE_COMPACT if self.is_flexible else b"\x7f" + b"\xff" * (width - 1)
                yield head + body[:at] + size + body[at + width :]

    def _length_of(self, body: bytes, longer: bytes, value: Any) -> tuple[int, int]:
        """Return where the length of a value is, and how many bytes it has."""
        at = next(at for at in range(len(body)) if body[at] != longer[at])
        if self.is_flexible:
            return at, 1
        return (at - 1, 2) if isinstance(value, str) else (at - 3, 4)

    def _lengths(self, body: bytes, longer: bytes, value: Any) -> Iterator[bytes]:
        at, width = self._length_of(body, longer, value)
        bad = BAD_SHORT if isinstance(value, str) else BAD_LONG
        lengths = (
            BAD_COMPACT
            if self.is_flexible
            else [length.to_bytes(width, "big", signed=True) for length in bad]
        )
        for length in lengths:
            yield body[:at] + length + body[at + width :]
        if isinstance(value, str):
            start = body.index(value.encode(), at)
            for junk in (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\0\n"):
                yield body[:start] + junk[: len(value)] + body[start + len(junk) :]


def places(value: Any, path: Path) -> Iterator[tuple[Path, Any, dataclasses.Field[Any]]]:
    """Yield every value in a request, how to get there, and its field."""
    for field in dataclasses.fields(value):
        inner, here = getattr(value, field.name), (*path, field.name)
        if dataclasses.is_dataclass(inner):
            yield from places(inner, here)
        else:
            yield here, inner, field
        if isinstance(inner, tuple) and inner and dataclasses.is_dataclass(inner[0]):
            yield from places(inner[0], (*here, 0))


def replaced(entity: Any, path: Path, value: Any) -> Any:
    """Return a copy in which one value is another."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):
        return (*entity[:step], replaced(entity[step], tuple(rest), value), *entity[step + 1 :])
    inner = replaced(getattr(entity, step), tuple(rest), value)
    return dataclasses.replace(entity, **{step: inner})


def twice(value: Any) -> Any:
    """Return a longer string, bytes or array."""
    return value + value


def is_optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def some(mutations: Iterator[bytes], count: int, seed: str) -> list[bytes]:
    """Choose some of them, the same ones each time."""
    everything = list(dict.fromkeys(mutations))
    return Random(seed).sample(everything, min(count, len(everything)))


def walk(entity: Any, visit: Callable[[str, Any], None]) -> None:
    """Show every value of an answer, with its name."""
    is_ours = isinstance(entity, Message)
    names = entity.__fields__ if is_ours else [field.name for field in dataclasses.fields(entity)]
    for name in names:
        value = getattr(entity, name)
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if dataclasses.is_dataclass(item) or isinstance(item, Message):
                walk(item, visit)
            else:
                visit(name, item)
