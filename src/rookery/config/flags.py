"""Command-line flags: one for each setting, with the field's docstring as help."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rookery.config.schema import DEST_PREFIX, NO_DEFAULT, Setting, settings_of
from rookery.config.values import toml_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def add_flags(parser: argparse.ArgumentParser, cls: type[DataclassInstance]) -> None:
    """Add a flag to a parser for each setting of a class; `load` reads them."""
    group = parser.add_argument_group("settings")
    for setting in settings_of(cls):
        _add_flag(group, setting)


def read_flags(parsed: Mapping[str, object]) -> dict[str, object]:
    """Return the values of the flags of `add_flags` from the parsed arguments."""
    return {name: value for name, value in parsed.items() if name.startswith(DEST_PREFIX)}


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    # Values stay text here: `load` checks them, with the same messages for all sources.
    words = _help(setting)
    if setting.kind.is_switch:
        action = argparse.BooleanOptionalAction
        # The action itself would show its `default` in its own format.
        group.add_argument(
            setting.flag, dest=setting.dest, action=action, default=argparse.SUPPRESS, help=words
        )
        return
    metavar = "|".join(setting.kind.choices) or setting.path[-1].upper()
    group.add_argument(
        setting.flag, dest=setting.dest, default=argparse.SUPPRESS, metavar=metavar, help=words
    )


def _help(setting: Setting) -> str:
    if setting.default is NO_DEFAULT:
        default = "required"
    elif setting.is_secret or setting.default in (None, "", ()):
        default = ""
    else:
        value = setting.kind.to_toml(setting.default)
        default = f"default: {value if isinstance(value, str) else toml_text(value)}"
    text = f"{setting.doc} ({default})" if default else setting.doc
    # argparse interprets percent signs.
    return text.strip().replace("%", "%%")
