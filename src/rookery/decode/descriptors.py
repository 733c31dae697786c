"""Loads Protobuf descriptors from a FileDescriptorSet, or from a registry with all imports."""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import Any, Final

from rookery.decode.registry import RegisteredSchema, SchemaRegistry
from rookery.errors import ConfigError

SERIALIZED: Final = "serialized"
"""The registry format for serialized descriptors; the default text needs a compiler."""

_GOOGLE: Final = "google/protobuf/"


def from_set(data: bytes) -> list[Any]:
    """Read a FileDescriptorSet (`protoc --descriptor_set_out --include_imports`).

    Raises:
        ConfigError: the data is not a FileDescriptorSet.
    """
    from google.protobuf import descriptor_pb2, message  # noqa: PLC0415 (only if Protobuf is used)

    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(data).file)
    except message.DecodeError:
        files = []
    if not files:
        raise ConfigError("decoder protobuf: schema must be a FileDescriptorSet as bytes")
    return files


def from_registry(schema: RegisteredSchema, registry: SchemaRegistry) -> list[Any]:
    """Read a registered file and everything that it imports; the file itself comes last.

    Raises:
        ConfigError: one of them is not a Protobuf file, or the registry does not provide
            descriptors.
        UnknownSchema, Unavailable: as the registry says.
    """
    used = registry.references(schema, SERIALIZED)
    files = [_file(data, name) for name, data in used.items()]
    return [*files, _file(schema, f"schema-{schema.schema_id}.proto")]


def _file(schema: RegisteredSchema, name: str) -> Any:
    from google.protobuf import descriptor_pb2, message  # noqa: PLC0415

    if schema.kind != "PROTOBUF":
        raise ConfigError(f"schema {schema.schema_id} is {schema.kind}, not PROTOBUF")
    try:
        data = base64.b64decode(schema.text, validate=True)
        file = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, message.DecodeError):
        raise ConfigError(
            f"schema {schema.schema_id}: the registry sent no serialized descriptor; "
            "give the decoder a FileDescriptorSet as schema"
        ) from None
    # Imports use the name of the reference, regardless of the name given to the compiler.
    file.name = name
    return file


def message_in(files: list[Any], name: str | None) -> Any:
    """Find a message by its full name; None: the first message of the last file.

    Raises:
        ConfigError: the message does not exist, or a required file is missing.
    """
    from google.protobuf import descriptor_pool  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    waiting = {file.name: file for file in files}
    added: set[str] = set()
    try:
        for file in files:
            _add(pool, file, waiting, added, ())
        if name is not None:
            return pool.FindMessageTypeByName(name)
        first = next(iter(files[-1].message_type), None)
        if first is None:
            raise ConfigError(f"decoder protobuf: {files[-1].name} has no message")
        space = f"{files[-1].package}." if files[-1].package else ""
        return pool.FindMessageTypeByName(space + first.name)
    except (KeyError, TypeError) as error:
        what = f"message {name!r}" if name else files[-1].name
        raise ConfigError(f"decoder protobuf: {what}: {str(error)[:200]}") from None


def _add(
    pool: Any, file: Any, files: dict[str, Any], added: set[str], above: tuple[str, ...]
) -> None:
    """Add a file after its imports, as a pool requires."""
    if file.name in above:
        raise KeyError(f"{file.name} imports itself")
    if file.name in added:
        return
    for name in file.dependency:
        used = files.get(name)
        if used is None and name.startswith(_GOOGLE):
            used = files[name] = _well_known(name)
        if used is None:
            raise KeyError(f"{file.name} imports {name}, which is missing")
        _add(pool, used, files, added, (*above, file.name))
    added.add(file.name)
    pool.AddSerializedFile(file.SerializeToString())


def _well_known(name: str) -> Any:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        descriptor = import_module(module).DESCRIPTOR
    except ImportError:
        raise KeyError(f"{name} is missing") from None
    return descriptor_pb2.FileDescriptorProto.FromString(descriptor.serialized_pb)


def index_path(descriptor: Any) -> list[int]:
    """Return the index path of a message in its file, with which framed values begin."""
    path: list[int] = []
    while descriptor is not None:
        above = descriptor.containing_type
        siblings = above.nested_types if above else descriptor.file.message_types_by_name.values()
        path.insert(0, [sibling.full_name for sibling in siblings].index(descriptor.full_name))
        descriptor = above
    return path
