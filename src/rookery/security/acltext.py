"""Access rules as texts: what `rookery acls list --json` prints, and files of rules hold."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from rookery.errors import ConfigError
from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType

_Number = TypeVar("_Number", bound=IntEnum)

_DEFAULTS: Final = {"permission": "allow", "host": "*", "pattern": "literal"}
_FIELDS: Final = ("permission", "principal", "host", "operation", "resource", "pattern", "name")


def rule_fields(rule: AclBinding) -> dict[str, str]:
    """Return the fields of a rule."""
    return {
        "permission": rule.permission.name.lower(),
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name.lower().replace("_", "-"),
        "resource": rule.resource_type.name.lower().replace("_", "-"),
        "pattern": rule.pattern_type.name.lower(),
        "name": rule.name,
    }


def read_rule(fields: Mapping[str, Any]) -> AclBinding:
    """Return the rule of some fields; permission, host and pattern have defaults.

    Raises:
        ConfigError: a field is missing, unknown or invalid.
    """
    unknown = sorted(fields.keys() - set(_FIELDS))
    if unknown:
        raise ConfigError(f"a rule has no field {unknown[0]!r}; it has: {', '.join(_FIELDS)}")
    texts = _DEFAULTS | dict(fields)
    for name in _FIELDS:
        if not isinstance(texts.get(name), str):
            raise ConfigError(f"a rule needs the field {name}, a text: {dict(fields)}")
    rule = AclBinding(
        _number(AclResource, "resource", texts),
        _number(PatternType, "pattern", texts),
        texts["name"],
        texts["principal"],
        texts["host"],
        _number(Operation, "operation", texts),
        _number(PermissionType, "permission", texts),
    )
    if rule.pattern_type not in {PatternType.LITERAL, PatternType.PREFIXED}:
        raise ConfigError(f"the pattern of a rule is literal or prefixed, not {texts['pattern']}")
    kind, _, name = rule.principal.partition(":")
    if not kind or not name:
        raise ConfigError(f"the principal {rule.principal!r} is not of the form Type:name")
    return rule


def read_rules(text: str, *, is_toml: bool) -> list[AclBinding]:
    """Return the rules of a file: a JSON list, or TOML tables `[[rules]]`.

    Raises:
        ConfigError: it has another form, or a rule is invalid.
    """
    try:
        content = tomllib.loads(text).get("rules") if is_toml else json.loads(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
        raise ConfigError("write a JSON list of rules, or TOML tables [[rules]]")
    return [read_rule(fields) for fields in content]


def _number(numbers: type[_Number], name: str, texts: Mapping[str, str]) -> _Number:
    try:
        return numbers[texts[name].upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name.lower().replace("_", "-") for each in numbers)
        raise ConfigError(f"{name}: {texts[name]!r} is not one of {known}") from None
