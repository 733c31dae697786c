"""Protobuf against Google's own package: types, framing, evolution, damage."""

from __future__ import annotations

import base64
import contextlib
import random
import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.decode.registry import RegistrySettings, SchemaRegistry
from rookery.errors import ConfigError
from rookery.testing.registry import RegistryServer
from tests.decode.samples import decoded, mutated, opened, reasons

FIELD = descriptor_pb2.FieldDescriptorProto
WELL_KNOWN: dict[str, Any] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (duration_pb2, timestamp_pb2, wrappers_pb2)
}
TYPES: dict[str, Any] = {
    "id": FIELD.TYPE_INT64,
    "name": FIELD.TYPE_STRING,
    "price": FIELD.TYPE_DOUBLE,
    "data": FIELD.TYPE_BYTES,
    "small": FIELD.TYPE_SINT32,
    "ok": FIELD.TYPE_BOOL,
    "count": FIELD.TYPE_UINT32,
}


def file(name: str = "orders.proto", *, more: bool = False) -> descriptor_pb2.FileDescriptorProto:
    """Describe shop.Order, after another message, with one nested in it."""
    made = descriptor_pb2.FileDescriptorProto(name=name, package="shop", syntax="proto3")
    made.dependency.extend(
        ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto",
         "google/protobuf/duration.proto"]
    )  # fmt: skip
    kind = made.enum_type.add(name="Kind")
    for number, symbol in enumerate(("NEW", "PAID")):
        kind.value.add(name=symbol, number=number)
    made.message_type.add(name="Other").field.add(name="x", number=1, type=FIELD.TYPE_INT32)
    order = made.message_type.add(name="Order")
    for number, (field, of) in enumerate(TYPES.items(), 1):
        order.field.add(name=field, number=number, type=of, label=1)
    order.field.add(name="tags", number=20, type=FIELD.TYPE_STRING, label=3)
    order.field.add(name="kind", number=21, type=FIELD.TYPE_ENUM, label=1, type_name=".shop.Kind")
    for number, (field, of) in enumerate(
        {"at": "google.protobuf.Timestamp", "maybe": "google.protobuf.Int64Value",
         "took": "google.protobuf.Duration", "line": "shop.Order.Line"}.items(), 22,
    ):  # fmt: skip
        order.field.add(
            name=field, number=number, type=FIELD.TYPE_MESSAGE, label=1, type_name=f".{of}"
        )
    order.nested_type.add(name="Line").field.add(name="sku", number=1, type=FIELD.TYPE_STRING)
    if more:
        order.field.add(name="extra", number=40, type=FIELD.TYPE_STRING, label=1)
    return made


def message_class(made: descriptor_pb2.FileDescriptorProto, name: str = "shop.Order") -> Any:
    pool = descriptor_pool.DescriptorPool()
    for used in made.dependency:
        pool.AddSerializedFile(WELL_KNOWN[used].serialized_pb)
    pool.AddSerializedFile(made.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def described(*files: descriptor_pb2.FileDescriptorProto) -> bytes:
    return bytes(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString())


Order = message_class(file())
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "name": st.text(max_size=9),
        "price": st.floats(allow_nan=False),
        "data": st.binary(max_size=9),
        "small": st.integers(-(2**31), 2**31 - 1),
        "ok": st.booleans(),
        "count": st.integers(0, 2**32 - 1),
        "tags": st.lists(st.text(max_size=3), max_size=3),
        "kind": st.sampled_from([0, 1]),
    },
)


def decoder() -> Any:
    return opened("protobuf", schema=described(file()), message="shop.Order")


@given(st.lists(VALUES, max_size=5))
@settings(max_examples=50, deadline=None)
def test_values_equal_those_of_googles_package(values: list[dict[str, Any]]) -> None:
    result = decoded(decoder(), [Order(**value).SerializeToString() for value in values])
    assert result.bad == ()
    empty = dict.fromkeys(("at", "maybe", "took", "line"))
    numbers = {"id": 0, "price": 0.0, "small": 0, "count": 0, "kind": 0}
    zero: dict[str, Any] = {**numbers, "name": "", "data": b"", "ok": False, "tags": [], **empty}
    wanted = [{**zero, **value} for value in values]
    for row in wanted:
        row["kind"] = ("NEW", "PAID")[row["kind"]]
    assert result.values.to_pylist() == wanted


def test_well_known_types_and_nested_messages() -> None:
    order = Order(line={"sku": "s"})
    order.at.FromDatetime(datetime(2026, 11, 15, tzinfo=UTC))
    order.maybe.value = 0
    order.took.FromTimedelta(timedelta(seconds=90))
    row = decoded(decoder(), [order.SerializeToString()]).values[0].as_py()
    assert row["at"] == datetime(2026, 11, 15, tzinfo=UTC)
    assert (row["maybe"], row["took"], row["line"]) == (0, timedelta(seconds=90), {"sku": "s"})


def test_damaged_messages_never_raise_and_readable_ones_equal_googles() -> None:
    chance = random.Random(3)
    whole = Order(id=5, name="näme", tags=["a", "b"], line={"sku": "x"}).SerializeToString()
    values = [mutated(whole, chance) for _ in range(1500)] + [whole]
    result = decoded(decoder(), values)
    assert len(result.bad) > 500
    read = 0
    for at, value in enumerate(values):
        with contextlib.suppress(DecodeError):
            order = Order.FromString(value)
            read += 1
            row = result.values[at].as_py()
            assert (row["id"], row["name"], row["tags"]) == (order.id, order.name, order.tags)
    assert read > 100


def test_one_invalid_row_among_many_is_reported() -> None:
    values = [Order(id=at).SerializeToString() for at in range(1000)]
    values[333] = b"\xff"
    result = decoded(decoder(), values)
    assert list(reasons(result)) == [333]
    assert "not a shop.Order" in reasons(result)[333]
    assert [row["id"] for row in result.values.to_pylist() if row] == [
        at for at in range(1000) if at != 333
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [(None, None), (b"", None), (b"\xff", None), ("text", None), (described(file()), "shop.None")],
)
def test_descriptors_are_needed(schema: Any, message: str | None) -> None:
    with pytest.raises(ConfigError, match="protobuf"):
        opened("protobuf", schema=schema, message=message)


def test_a_missing_import_is_named() -> None:
    made = file()
    made.dependency.append("gone.proto")
    with pytest.raises(ConfigError, match=r"gone\.proto"):
        opened("protobuf", schema=described(made))


# ---- with a registry


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as made:
        yield made


def registered(server: RegistryServer, made: descriptor_pb2.FileDescriptorProto) -> int:
    text = base64.b64encode(made.SerializeToString()).decode()
    return server.register("orders-value", text, "PROTOBUF")


def framed(schema_id: int, indexes: bytes, message: Any) -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + bytes(message.SerializeToString())


def test_message_types_are_selected_by_their_indexes(server: RegistryServer) -> None:
    old, new = registered(server, file()), registered(server, file(more=True))
    newer = message_class(file(more=True))
    other = message_class(file(), "shop.Other")
    registry = SchemaRegistry(RegistrySettings(server.url))
    made = opened("protobuf", registry=registry, subject="orders-value", message="shop.Order")
    values = [
        framed(old, b"\x02\x02", Order(id=1)),
        framed(new, b"\x02\x02", newer(id=2, extra="e")),
        framed(old, b"\x00", other(x=9)),
        framed(old, b"\x04\x02\x00", Order.Line(sku="s")),
        framed(99, b"\x02\x02", Order()),
        framed(old, b"", other()),
        None,
    ]
    result = decoded(made, values)
    assert [row and (row["id"], row["extra"]) for row in result.values.to_pylist()] == [
        (1, ""), (2, "e"), None, None, None, None, None,
    ]  # fmt: skip
    assert [(bad.row, bad.schema_id) for bad in result.bad] == [
        (2, old),
        (3, old),
        (4, 99),
        (5, old),
    ]
    assert "another message than shop.Order" in reasons(result)[2]


def test_first_message_type_has_a_short_index(server: RegistryServer) -> None:
    schema_id = registered(server, file())
    other = message_class(file(), "shop.Other")
    made = opened("protobuf", registry=SchemaRegistry(server.url), subject="orders-value")
    result = decoded(
        made, [framed(schema_id, b"\x00", other(x=4)), framed(schema_id, b"\x02\x00", other(x=5))]
    )
    assert result.values.to_pylist() == [{"x": 4}, {"x": 5}]


def test_imports_come_from_references(server: RegistryServer) -> None:
    registered(server, file())
    user = descriptor_pb2.FileDescriptorProto(name="u.proto", package="u", syntax="proto3")
    user.dependency.append("shop/orders.proto")
    user.message_type.add(name="U").field.add(
        name="order", number=1, type=FIELD.TYPE_MESSAGE, label=1, type_name=".shop.Order"
    )
    text = base64.b64encode(user.SerializeToString()).decode()
    used = [{"name": "shop/orders.proto", "subject": "orders-value", "version": 1}]
    schema_id = server.register("u-value", text, "PROTOBUF", used)
    made = opened("protobuf", registry=SchemaRegistry(server.url), subject="u-value")
    inner = Order(id=8).SerializeToString()
    value = struct.pack(">bI", 0, schema_id) + b"\x00\x0a" + bytes([len(inner)]) + inner
    assert decoded(made, [value]).values[0].as_py()["order"]["id"] == 8


def single(kind: int, label: int = 1) -> descriptor_pb2.FileDescriptorProto:
    """Describe shop.Thing, whose one field is of some type."""
    made = descriptor_pb2.FileDescriptorProto(name="t.proto", package="shop", syntax="proto3")
    made.message_type.add(name="Thing").field.add(
        name="x", number=1, type=cast("Any", kind), label=cast("Any", label)
    )
    return made


@pytest.mark.parametrize(
    ("reader", "writer", "value", "read"),
    [
        (FIELD.TYPE_INT64, FIELD.TYPE_INT32, -5, -5),
        (FIELD.TYPE_INT64, FIELD.TYPE_UINT32, 2**32 - 1, 2**32 - 1),
        (FIELD.TYPE_SINT64, FIELD.TYPE_SINT32, -7, -7),
        (FIELD.TYPE_BYTES, FIELD.TYPE_STRING, "a", b"a"),
        (FIELD.TYPE_INT32, FIELD.TYPE_INT64, 1 << 40, None),
        (FIELD.TYPE_INT64, FIELD.TYPE_SINT64, -5, None),
        (FIELD.TYPE_INT64, FIELD.TYPE_STRING, "x", None),
        (FIELD.TYPE_STRING, FIELD.TYPE_BYTES, b"\xff", None),
        (FIELD.TYPE_DOUBLE, FIELD.TYPE_FLOAT, 1.5, None),
    ],
)
def test_field_of_another_type_is_converted_losslessly_or_refused(
    server: RegistryServer, reader: int, writer: int, value: Any, read: Any
) -> None:
    written = registered(server, single(writer))
    registered(server, single(reader))
    made = opened("protobuf", registry=SchemaRegistry(server.url), subject="orders-value")
    thing = message_class(single(writer), "shop.Thing")(x=value)
    result = decoded(made, [framed(written, b"\x00", thing)])

    if read is not None:
        assert result.values.to_pylist() == [{"x": read}]
        assert result.bad == ()
    else:
        [bad] = result.bad
        assert "cannot be used: field 'x' is" in bad.reason
        assert bad.schema_id == written


def test_repeated_field_is_not_read_as_its_last_value(server: RegistryServer) -> None:
    written = registered(server, single(FIELD.TYPE_STRING, 3))
    registered(server, single(FIELD.TYPE_STRING))
    made = opened("protobuf", registry=SchemaRegistry(server.url), subject="orders-value")
    thing = message_class(single(FIELD.TYPE_STRING, 3), "shop.Thing")(x=["a", "b"])

    [bad] = decoded(made, [framed(written, b"\x00", thing)]).bad
    assert "field 'x' is repeated string there and string here" in bad.reason
