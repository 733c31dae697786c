"""Evolves a table's schema with the data: new fields and wider types are added automatically.

    merge(old, new).schema      # what both fit into
    merge(old, new).changes     # in words, empty if nothing changes

Fields that the new schema lacks are kept, and are null from then on. A change that would lose or
reinterpret data is a `Conflict` that names the field.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from rookery.errors import Conflict


@dataclass(frozen=True, slots=True)
class Evolution:
    """The schema that fits old and new rows, and its changes to the old one."""

    schema: pa.Schema
    changes: tuple[str, ...] = ()


def merge(old: pa.Schema, new: pa.Schema) -> Evolution:
    """Merge two schemas.

    Raises:
        Conflict: a field's new type holds other values, or only some of the old ones.
    """
    changes: list[str] = []
    fields = _merge_fields(list(old), list(new), "", changes)
    return Evolution(pa.schema(fields).with_metadata(old.metadata), tuple(changes))


def _merge_fields(
    old: list[pa.Field[pa.DataType]],
    new: list[pa.Field[pa.DataType]],
    path: str,
    changes: list[str],
) -> list[pa.Field[pa.DataType]]:
    theirs = {field.name: field for field in new}
    merged = []
    for field in old:
        other = theirs.pop(field.name, None)
        merged.append(field if other is None else _merge_field(field, other, path, changes))
    for name, field in theirs.items():
        if any(name.lower() == own.name.lower() for own in old):
            # Spark and most catalogs are case-insensitive.
            raise Conflict(f"field {path + name!r} differs from another in its case only")
        changes.append(f"add {path + name}: {field.type}")
        merged.append(field.with_nullable(nullable=True))
    return merged


def _merge_field(
    old: pa.Field[pa.DataType], new: pa.Field[pa.DataType], path: str, changes: list[str]
) -> pa.Field[pa.DataType]:
    name = path + old.name
    kind = _merge_types(old.type, new.type, name, changes)
    is_nullable = old.nullable or new.nullable
    if is_nullable and not old.nullable:
        changes.append(f"allow null in {name}")
    return old.with_type(kind).with_nullable(nullable=is_nullable)


def _merge_types(old: pa.DataType, new: pa.DataType, name: str, changes: list[str]) -> pa.DataType:
    if old == new:
        return old
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return pa.struct(_merge_fields(list(old), list(new), f"{name}.", changes))
    if pa.types.is_list(old) and pa.types.is_list(new):
        item = _merge_types(old.value_type, new.value_type, f"{name}[]", changes)
        return pa.list_(old.value_field.with_type(item))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        return pa.map_(
            old.key_type, _merge_types(old.item_type, new.item_type, f"{name}{{}}", changes)
        )
    wider = _wider(old, new)
    if wider is None:
        raise Conflict(
            f"field {name!r} was {old} and is now {new}: write to another table or field, "
            "or decode it as a type that holds both"
        )
    if wider != old:
        changes.append(f"widen {name}: {old} to {wider}")
    return wider


def _wider(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    """Return the type of the two that holds all values of both, or None."""
    if pa.types.is_null(old) or pa.types.is_null(new):
        return new if pa.types.is_null(old) else old
    if _holds(old, new):
        return old
    if _holds(new, old):
        return new
    return _wider_decimal(old, new)


def _holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    if pa.types.is_signed_integer(wide) and pa.types.is_signed_integer(narrow):
        return wide.bit_width >= narrow.bit_width
    if pa.types.is_float64(wide):
        # A double holds every 32-bit integer, but not every long.
        is_small = pa.types.is_signed_integer(narrow) and narrow.bit_width <= 32
        return pa.types.is_float32(narrow) or is_small
    return False


def _wider_decimal(old: pa.DataType, new: pa.DataType) -> pa.DataType | None:
    if not (pa.types.is_decimal128(old) and pa.types.is_decimal128(new)):
        return None
    # Another scale would require rewriting every old value, which tables do not do.
    if old.scale != new.scale:
        return None
    return old if old.precision >= new.precision else new
