"""Loads a pipeline from `pipeline.toml`; unknown keys are refused with a suggestion."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from rookery.errors import ConfigError
from rookery.pipeline.declaration.choices import dash, suggest
from rookery.pipeline.declaration.spec import Decode, Gold, Pipeline, Silver, Sink, Source, Upkeep
from rookery.store.open import is_url

T = TypeVar("T")
_ANY: Final = "a valid value"


def load(path: str | Path) -> Pipeline:
    """Read a pipeline's file; its paths are relative to the file's folder.

    Raises:
        ConfigError: the file cannot be read, or the declaration is invalid.
    """
    path = Path(path)
    try:
        value = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: no TOML: {error}") from error
    try:
        return _place(_pipeline(value, path.stem), path.absolute().parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _pipeline(value: dict[str, Any], stem: str) -> Pipeline:
    value.setdefault("name", stem if stem != "pipeline" else "")
    value.setdefault("state", f".rookery/{value['name']}")
    value["source"] = _fill(Source, "source", value.get("source", {}))
    value["silver"] = _fill(Silver, "silver", value.get("silver", {}))
    value["upkeep"] = _fill(Upkeep, "upkeep", value.get("upkeep", {}))
    value["topics"] = {
        topic: _fill(Decode, f"topics.{topic}", table)
        for topic, table in _topics(value.get("topics", {})).items()
    }
    value["sinks"] = _each(Sink, "sinks", value.get("sinks", []))
    value["gold"] = _each(Gold, "gold", value.get("gold", []))
    return _fill(Pipeline, "", value)


def _topics(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            "topics: write [topics.NAME], once for each; those that are read are source.topics"
        )
    return value


def _each(cls: type[T], name: str, values: object) -> list[T]:
    if not isinstance(values, list):
        raise ConfigError(f"{name}: write [[{name}]], once for each")
    return [_fill(cls, f"{name} {number}", item) for number, item in enumerate(values, 1)]


def _fill(cls: type[T], section: str, value: object) -> T:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{section}: must be a table")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type] # all are dataclasses
    given: dict[str, Any] = {}
    for key, item in value.items():
        name = str(key).replace("-", "_")
        if name not in known:
            raise ConfigError(
                f"{_in(section, key)}: unknown{suggest(dash(key), list(map(dash, known)))}"
            )
        given[name] = _check(_in(section, key), str(known[name].type), item)
    for name, option in known.items():
        if name not in given and option.default is MISSING and option.default_factory is MISSING:
            raise ConfigError(f"{_in(section, dash(name))}: is missing")
    return cls(**given)


def _check(name: str, kind: str, value: Any) -> Any:
    """Refuse a value whose type differs from the field's; convert lists to tuples."""
    wanted: type | tuple[type, ...] = object
    if kind.startswith(("str", "Literal")):
        wanted = str
    elif kind == "int":
        wanted = int
    elif kind == "bool":
        wanted = bool
    elif kind.startswith("tuple"):
        wanted = list
    elif kind == "Mapping[str, str]":
        wanted = dict
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"{name}: {value!r} is not {_words(wanted)}")
    if isinstance(value, dict) and kind == "Mapping[str, str]":
        _check_text(name, list(value.values()))
    if isinstance(value, list) and kind == "tuple[str, ...]":
        _check_text(name, value)
    return tuple(value) if isinstance(value, list) else value


def _check_text(name: str, values: list[object]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name}: its values must be text")


def _words(wanted: type | tuple[type, ...]) -> str:
    names = {
        str: "text",
        int: "a whole number",
        bool: "true or false",
        list: "a list",
        dict: "a table",
    }
    return names.get(wanted, _ANY) if isinstance(wanted, type) else _ANY


def _in(section: str, key: str) -> str:
    return f"{section}.{key}" if section else str(key)


def _place(pipeline: Pipeline, folder: Path) -> Pipeline:
    source = pipeline.source
    return replace(
        pipeline,
        state=_below(folder, pipeline.state),
        source=replace(
            source,
            store=_below(folder, source.store) if source.store else "",
            data=_below(folder, source.data) if source.data else "",
        ),
        sinks=tuple(
            sink
            if sink.format == "topic"
            else replace(sink, location=_below(folder, sink.location))
            for sink in pipeline.sinks
        ),
        gold=tuple(replace(gold, location=_below(folder, gold.location)) for gold in pipeline.gold),
        topics={
            topic: replace(decode, schema_file=_below(folder, decode.schema_file))
            if decode.schema_file
            else decode
            for topic, decode in pipeline.topics.items()
        },
    )


def _below(folder: Path, location: str) -> str:
    if is_url(location):
        return location
    return str(folder / Path(location).expanduser())
