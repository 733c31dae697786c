"""Records as producers with a schema registry write them: a zero byte, an id, and the value."""

from __future__ import annotations

import base64
import io
import struct
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
KINDS: dict[str, Any] = {
    "long": _FIELD.TYPE_INT64,
    "string": _FIELD.TYPE_STRING,
    "double": _FIELD.TYPE_DOUBLE,
}


def record(**fields: Any) -> dict[str, Any]:
    """Return an Avro schema; fields that may be null have a default."""
    listed = [
        {"name": name, "type": kind} | ({"default": None} if isinstance(kind, list) else {})
        for name, kind in fields.items()
    ]
    return {"type": "record", "name": "Bird", "fields": listed}


def avro(schema_id: int, schema: Any, **value: Any) -> bytes:
    """Return a framed Avro value."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def proto(**fields: str) -> descriptor_pb2.FileDescriptorProto:
    """Describe a message Bird with these fields, numbered in their order."""
    made = descriptor_pb2.FileDescriptorProto(name="bird.proto", package="zoo", syntax="proto3")
    bird = made.message_type.add(name="Bird")
    for number, (name, kind) in enumerate(fields.items(), 1):
        bird.field.add(name=name, number=number, type=KINDS[kind], label=1)
    return made


def registrable(file: descriptor_pb2.FileDescriptorProto) -> str:
    """Return what a registry keeps of a file."""
    return base64.b64encode(file.SerializeToString()).decode()


def protobuf(schema_id: int, file: descriptor_pb2.FileDescriptorProto, **value: Any) -> bytes:
    """Return a framed Protobuf value of the file's first message."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("zoo.Bird"))
    return struct.pack(">bI", 0, schema_id) + b"\0" + message(**value).SerializeToString()
