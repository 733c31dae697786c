"""The sources of values: TOML files, the environment, flags. Each value knows its place."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rookery.config.schema import Setting
from rookery.errors import ConfigError

_MAX_FILE_BYTES: Final = 1024 * 1024
_TABLE = re.compile(r"\s*\[([^\[\]]+)\]\s*(#.*)?")
_KEY = re.compile(r"\s*([\w\-.\"' \t]+?)\s*=")


@dataclass(frozen=True, slots=True)
class GivenValue:
    """A value as given by a source, not yet checked."""

    setting: Setting
    value: object
    is_text: bool
    """Whether it is the text of a variable or flag; otherwise it is a TOML value."""
    source: str
    """Its place as text: `rookery.toml:3`, `variable X` or `flag --x`."""


class Problems:
    """Collects all problems, so that the user sees them together."""

    def __init__(self) -> None:
        self._problems: list[str] = []

    def add(self, problem: str) -> None:
        """Add a problem."""
        self._problems.append(problem)

    def check(self) -> None:
        """Raise an error if there are problems.

        Raises:
            ConfigError: there are problems; its text has a line for each.
        """
        if self._problems:
            raise ConfigError("\n".join(self._problems))


def from_flags(settings: Sequence[Setting], flags: Mapping[str, object]) -> Iterator[GivenValue]:
    """Yield the values of the command line, by `Setting.dest`."""
    for setting in settings:
        value = flags.get(setting.dest)
        if value is not None:
            yield GivenValue(setting, value, is_text=True, source=f"flag {setting.flag}")


def from_environment(
    settings: Sequence[Setting], section: str, environ: Mapping[str, str]
) -> Iterator[GivenValue]:
    """Yield the values of the environment."""
    for setting in settings:
        name = setting.variable(section)
        if name in environ:
            yield GivenValue(setting, environ[name], is_text=True, source=f"variable {name}")


def misspelt_variables(
    settings: Sequence[Setting], section: str, environ: Mapping[str, str]
) -> Iterator[str]:
    """Yield a warning for each variable that resembles a setting's but is unknown.

    Only a warning: others, such as Kubernetes for a service named rookery, use the same prefix.
    """
    known = [setting.variable(section) for setting in settings]
    prefix = re.sub("[-.]", "_", f"ROOKERY_{section}_".upper())
    for name in sorted(environ):
        if name.startswith(prefix) and name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
            if near:
                yield f"variable {name} is not a setting; did you mean {near[0]}?"


class TomlFile:
    """A parsed file with the line numbers of its keys."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be read, or is not TOML.
        """
        self._path = path
        self._text = _read(path)
        try:
            self._root = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: not TOML: {error}") from None
        self._lines: dict[tuple[str, ...], int] | None = None

    def check_sections(self, sections: Collection[str], problems: Problems) -> None:
        """Add a problem for every unknown table."""
        for name in self._root:
            if name not in sections:
                place = self._place((_normal(name),))
                problems.add(f"{name}: unknown{_suggestion(name, sections)} ({place})")

    def read_given(
        self, settings: Sequence[Setting], section: str, problems: Problems
    ) -> Iterator[GivenValue]:
        """Yield the values of a section, which can be nested; add a problem per unknown key."""
        by_path = {setting.path: setting for setting in settings}
        keys = section.split(".")
        above, table = tuple(map(_normal, keys)), self._table(keys)
        if not isinstance(table, dict):
            problems.add(f"{section}: must be a table, written [{section}] ({self._place(above)})")
            return
        for path, value in self._walk(table, above, by_path, problems):
            yield GivenValue(
                by_path[path], value, is_text=False, source=self._place((*above, *path))
            )

    def names(self, section: str, path: Sequence[str] = ()) -> list[str]:
        """Return the tables in a section, or in a table at a path within it."""
        table = self._table((*section.split("."), *path))
        inner = table if isinstance(table, dict) else {}
        return sorted(name for name, value in inner.items() if isinstance(value, dict))

    def _table(self, keys: Sequence[str]) -> object:
        """Return the value at some keys, also of another spelling; an empty table if none is."""
        table: object = self._root
        for key in keys:
            inner = table if isinstance(table, dict) else {}
            alike = (value for name, value in inner.items() if _normal(name) == _normal(key))
            table = inner[key] if key in inner else next(alike, {})
        return table

    def _walk(
        self,
        table: Mapping[str, object],
        section: tuple[str, ...],
        known: Collection[tuple[str, ...]],
        problems: Problems,
        above: tuple[str, ...] = (),
    ) -> Iterator[tuple[tuple[str, ...], object]]:
        seen: set[str] = set()
        for key, value in table.items():
            name = _normal(key)
            path = (*above, name)
            full = (*section, *path)
            shown = ".".join((*section, *above, key)).replace("_", "-")
            if name in seen:
                problems.add(f"{shown}: given twice, as {key} too ({self._place(full)})")
            elif path in known:
                yield path, value
            elif isinstance(value, dict) and any(other[: len(path)] == path for other in known):
                yield from self._walk(value, section, known, problems, path)
            else:
                names = {other[len(above)] for other in known if other[: len(above)] == above}
                hint = _suggestion(name, names)
                problems.add(f"{shown}: unknown{hint} ({self._place(full)})")
            seen.add(name)

    def _place(self, path: tuple[str, ...]) -> str:
        if self._lines is None:
            self._lines = _find_lines(self._text)
        # A key within an inline table has the line of the table.
        for count in range(len(path), 0, -1):
            if line := self._lines.get(path[:count]):
                return f"{self._path}:{line}"
        return str(self._path)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path}: above {_MAX_FILE_BYTES} bytes; is this the right file?")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from None


def _find_lines(text: str) -> dict[tuple[str, ...], int]:
    """Find the line of every key.

    This is a heuristic, since the parser does not report lines: text within a multi-line string can
    be mistaken for a key. The line is only shown to people.
    """
    lines: dict[tuple[str, ...], int] = {}
    above: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := _TABLE.fullmatch(line):
            above = _split(match[1])
            lines.setdefault(above, number)
        elif match := _KEY.match(line):
            lines.setdefault((*above, *_split(match[1])), number)
    return lines


def _split(key: str) -> tuple[str, ...]:
    return tuple(_normal(part.strip().strip("\"'")) for part in key.split("."))


def _normal(key: str) -> str:
    return key.replace("-", "_")


def _suggestion(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    if near:
        return f"; did you mean {near[0].replace('_', '-')}?"
    listed = ", ".join(sorted(name.replace("_", "-") for name in known))
    return f"; known are {listed}" if listed else ""
