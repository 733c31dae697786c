"""Checks JSON values against a JSON Schema (draft 2020-12), with the package jsonschema-rs.

A schema comes from the operator, values come from clients. So nothing is fetched for a schema, and
its patterns run on an engine whose time is linear in the length of the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NoReturn, Protocol

from rookery.errors import ConfigError

_MAX_REASON: Final = 200
_MASK: Final = "the value"
"""Stands for values in messages: they can be long, and secret."""


class SchemaError(Protocol):
    """Why a value does not have a schema."""

    message: str
    instance_path: list[str | int]


class SchemaValidator(Protocol):
    """A compiled schema."""

    def iter_errors(self, instance: Any) -> Iterable[SchemaError]:
        """Yield what is wrong with a value."""


class JsonSchema:
    """Checks JSON values."""

    def __init__(self, text: str) -> None:
        """Compile a schema.

        Raises:
            ConfigError: it is not a schema, refers to another document, or the package is missing.
        """
        self._validator = _compile(text)

    def reason(self, value: bytes) -> str | None:
        """Return why a value does not have the schema; None if it has."""
        try:
            instance = json.loads(value, parse_constant=_refuse_constant)
            error = next(iter(self._validator.iter_errors(instance)), None)
        except RecursionError:
            return "the JSON is nested too deeply"
        except ValueError as wrong:
            return f"no valid JSON: {wrong}"[:_MAX_REASON]
        if error is None:
            return None
        place = "".join(f"/{part}" for part in error.instance_path)
        return (f"{place}: {error.message}" if place else error.message)[:_MAX_REASON]


def _compile(text: str) -> SchemaValidator:
    try:
        import jsonschema_rs  # noqa: PLC0415 (an optional package)
    except ImportError as error:
        raise ConfigError(
            "the format json_schema needs jsonschema-rs: pip install 'rookery[json-schema]'"
        ) from error
    try:
        schema = json.loads(text, parse_constant=_refuse_constant)
        validator: SchemaValidator = jsonschema_rs.Draft202012Validator(
            schema,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
            mask=_MASK,
        )
    except (ValueError, RecursionError) as error:
        first, *_ = str(error).splitlines() or [""]
        raise ConfigError(f"schema_file: it cannot be used as a JSON Schema: {first}") from error
    return validator


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
