"""Shows settings with their sources, as a loadable file or for scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from rookery.config.load import LoadedSettings
from rookery.config.schema import Setting
from rookery.config.values import Toml, toml_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

# A file with a secret can be shown; the secret cannot.
_SECRET: Final = re.compile(r"(password|secret|token|(^|_)key)$", re.IGNORECASE)

MASK: Final = "********"
"""Shown in place of a secret, regardless of its length."""


def print_config(loaded: LoadedSettings[T]) -> str:
    """Return the settings as TOML, with the source of each in a comment.

    Loading the text yields the same settings, except for secrets.
    """
    tables: dict[tuple[str, ...], list[str]] = {(): []}
    for setting, value in loaded.values.items():
        lines = tables.setdefault(setting.path[:-1], [])
        lines.append(_line(setting, value, loaded.sources[setting]))
    blocks = []
    for path, lines in tables.items():
        name = ".".join((loaded.section, *(part.replace("_", "-") for part in path)))
        blocks.append("\n".join([f"[{name}]", *lines, ""]))
    return "\n".join(blocks)


def config_as_json(loaded: LoadedSettings[T]) -> dict[str, dict[str, dict[str, Toml | None]]]:
    """Return the settings for `--json`: section, key, then value and source."""
    rows: dict[str, dict[str, Toml | None]] = {
        setting.key: {"value": _format(setting, value), "source": loaded.sources[setting]}
        for setting, value in loaded.values.items()
    }
    return {loaded.section: rows}


def _line(setting: Setting, value: object, source: str) -> str:
    shown = _format(setting, value)
    key = setting.path[-1].replace("_", "-")
    # TOML has no null; the empty text represents it.
    return f"{key} = {toml_text('' if shown is None else shown)}  # {_one_line(source)}"


def _format(setting: Setting, value: object) -> Toml | None:
    if value is None:
        return None
    if setting.is_secret:
        return MASK if value else ""
    return _mask(setting.kind.to_toml(value))


def _mask(value: Toml) -> Toml:
    """Hide the secrets in a table whose keys are not settings, such as the options of a filter."""
    if isinstance(value, list):
        return [_mask(each) for each in value]
    if isinstance(value, dict):
        return {
            key: MASK if _SECRET.search(key) and inner else _mask(inner)
            for key, inner in value.items()
        }
    return value


def _one_line(source: str) -> str:
    # A file name can hold any character, but a comment ends with its line.
    return "".join(letter if letter.isprintable() else "?" for letter in source)
