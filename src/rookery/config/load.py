"""Loads settings: each value from the source with the highest precedence, checked, with its place.

This package is the only one that reads the environment, and it does so here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rookery.config.schema import (
    NO_DEFAULT,
    Setting,
    build,
    settings_of,
    table_fields,
)
from rookery.config.sources import (
    GivenValue,
    Problems,
    TomlFile,
    from_environment,
    from_flags,
    misspelt_variables,
)
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

DEFAULT: Final = "default"
"""The source of a value that was not set."""
DEFAULT_FILE: Final = Path("rookery.toml")
"""Read if it exists and no other file is named."""
FILE_VARIABLE: Final = "ROOKERY_CONFIG"
"""Names the file, if no flag does."""
_WORD: Final = re.compile(r"[a-z]+(?:_[a-z]+)+")


@dataclass(frozen=True, slots=True)
class LoadedSettings(Generic[T]):
    """Settings, and the source of each value."""

    settings: T
    section: str
    values: Mapping[Setting, object]
    sources: Mapping[Setting, str]
    """As text: `default`, `rookery.toml:3`, `variable X` or `flag --x`."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user, which are not errors."""

    def locate(self, error: ConfigError) -> ConfigError:
        """Return an error with the places of the settings that it names; the same if it names none.

        Args:
            error: its `name` is that of a setting, or of a table whose setting the reason names
                first.
        """
        path = tuple(error.name.replace("-", "_").split("."))
        words = _WORD.findall(error.reason.partition(":")[0])
        named = [*self._find_given(path[:-1], {path[-1]})] or [*self._find_given(path, set(words))]
        if not named or not error.name:
            return error
        places = ", ".join(dict.fromkeys(self.sources[setting] for setting in named))
        key = error.name.replace("_", "-")
        return ConfigError(f"{error.reason} ({places})", name=f"{self.section}.{key}")

    def _find_given(self, table: tuple[str, ...], names: set[str]) -> Iterator[Setting]:
        """Yield the settings of a table, or of one within it, that the user has given."""
        for setting, source in self.sources.items():
            is_below = setting.path[: len(table)] == table
            if is_below and setting.path[-1] in names and source != DEFAULT:
                yield setting


def load(  # noqa: PLR0913, PLR0917 (one for each source)
    cls: type[T],
    section: str,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    files: Sequence[Path] = (),
    sections: Collection[str] = (),
    more: Sequence[GivenValue] = (),
) -> LoadedSettings[T]:
    """Load settings; flags override the environment, which overrides files, and later files win.

    Args:
        cls: the settings class.
        section: the name of its table in files, and in the names of its variables.
        flags: the values of the flags of `add_flags`, as `read_flags` returns them.
        environ: the environment; by default the process's own.
        files: TOML files, all of which must exist.
        sections: all tables that a file may hold; if given, other tables are rejected.
        more: values from another kind of file; they override TOML files.

    Raises:
        ConfigError: the settings are invalid; the text lists all problems with their places.
    """
    environ = os.environ if environ is None else environ
    tomls, problems = [TomlFile(path) for path in files], Problems()
    settings = settings_of(cls, tuple(_table_names(cls, section, tomls, more)))
    given: dict[Setting, GivenValue] = {}
    for file in tomls:
        if sections:
            file.check_sections(sections, problems)
        given.update(_by_setting(file.read_given(settings, section, problems)))
    # Another list of settings has other objects for them, if files name tables.
    own = {setting.path: setting for setting in settings}
    given.update((own[value.setting.path], value) for value in more)
    given.update(_by_setting(from_environment(settings, section, environ)))
    given.update(_by_setting(from_flags(settings, flags or {})))
    values = dict(_values(settings, section, given, problems))
    problems.check()
    sources = {
        setting: given[setting].source if setting in given else DEFAULT for setting in settings
    }
    made = _build(cls, section, values, sources)
    warnings = tuple(misspelt_variables(settings, section, environ))
    return LoadedSettings(made, section, values, sources, warnings)


def config_files(
    named: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    default: Path = DEFAULT_FILE,
) -> list[Path]:
    """Find the files to load: the named ones, that of ROOKERY_CONFIG, or the default."""
    environ = os.environ if environ is None else environ
    if not named and environ.get(FILE_VARIABLE):
        named = [environ[FILE_VARIABLE]]
    if named:
        return [Path(name).expanduser() for name in named]
    return [default] if default.is_file() else []


def _table_names(
    cls: type[DataclassInstance],
    section: str,
    files: Sequence[TomlFile],
    more: Sequence[GivenValue],
    above: tuple[str, ...] = (),
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield the fields that hold named tables, each with the names that files give to the tables.

    Args:
        cls: the class of the settings, or of a named table.
        section: the table of the settings in the files.
        files: TOML files.
        more: values from another kind of file.
        above: the path of the named table.
    """
    for field, inner in table_fields(cls).items():
        path = (*above, field)
        given = (name for file in files for name in file.names(section, path))
        names = dict.fromkeys(name.replace("-", "_") for name in given)
        for other in (value.setting.path for value in more):
            if other[: len(path)] == path:
                names[other[len(path)]] = None
        yield path, tuple(names)
        for name in names:
            yield from _table_names(inner, section, files, more, (*path, name))


def _by_setting(given: Iterator[GivenValue]) -> Iterator[tuple[Setting, GivenValue]]:
    return ((value.setting, value) for value in given)


def _values(
    settings: Sequence[Setting],
    section: str,
    given: Mapping[Setting, GivenValue],
    problems: Problems,
) -> Iterator[tuple[Setting, object]]:
    for setting in settings:
        if setting in given:
            try:
                yield setting, _value(given[setting])
            except ValueError:
                problems.add(_refusal(section, given[setting]))
        elif setting.default is NO_DEFAULT:
            problems.add(
                f"{section}.{setting.key}: must be set: by {setting.flag}, by "
                f"{setting.variable(section)}, or in the table [{section}] of a file"
            )
        else:
            yield setting, setting.default


def _value(given: GivenValue) -> object:
    kind = given.setting.kind
    if given.is_text and isinstance(given.value, str):
        return kind.from_text(given.value)
    return kind.from_toml(given.value)


def _refusal(section: str, given: GivenValue) -> str:
    setting = given.setting
    shown = setting.format_value(given.value)
    return f"{section}.{setting.key}: must be {setting.kind.allowed}, not {shown} ({given.source})"


def _build(
    cls: type[T], section: str, values: Mapping[Setting, object], sources: Mapping[Setting, str]
) -> T:
    """Create the settings; if the class rejects a value, report the value's source."""
    try:
        return build(cls, {setting.path: value for setting, value in values.items()})
    except ConfigError as error:
        named = [source for source in sources if source.path[-1] == error.name]
        if not named:
            raise ConfigError(f"{section}: {error}") from error
        # Several settings in nested classes can share a name: then report all their places.
        places = ", ".join(f"{source.key}: {sources[source]}" for source in named)
        if len(named) == 1:
            places = sources[named[0]]
        key = named[0].key if len(named) == 1 else error.name.replace("_", "-")
        raise ConfigError(f"{error.reason} ({places})", name=f"{section}.{key}") from error
