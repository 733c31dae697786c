"""Installed packages: their dependencies and their files."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError

_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
# Large files that are needed only to build or test these packages, or belong to unused parts of
# Arrow.
_NOT_NEEDED: Final = re.compile(
    r"\.\./|.*/tests/(?!_natype)|pyarrow/(?:include|src)/"
    r"|pyarrow/(?:__pycache__/)?[^/]*(?:flight|gandiva)"
    r"|.*\.(?:pyi|pyx|pxd|pxi|h|hpp|a)$"
)


def closure(
    wanted: Iterable[str], *, left_out: Collection[str] = ()
) -> dict[str, metadata.Distribution]:
    """Return packages and all their dependencies, by name.

    Args:
        wanted: requirements, such as `rookery[etcd,spark]`; their versions are ignored.
        left_out: names that are skipped, with their dependencies.

    Raises:
        ConfigError: a package that is needed on every platform is not installed.
    """
    distributions: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in wanted]
    while waiting:
        requirement, needed_by = waiting.pop()
        name, extras = _parse(requirement)
        if name in left_out:
            continue
        distribution = _find(name, requirement, needed_by)
        if distribution is None:
            continue
        distributions[name] = distribution
        for extra in ("", *extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += [(need, name) for need in _needs(distribution, extra)]
    return distributions


def files_of(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the files of an installed package: the path below site-packages, and the file.

    Raises:
        ConfigError: it does not record its files.
    """
    name = distribution.metadata["Name"]
    files = [(file.as_posix(), Path(str(file.locate()))) for file in distribution.files or ()]
    kept = [(file, place) for file, place in files if _is_needed(file)]
    if not any(file.endswith((".py", ".so", ".pyd")) for file, _ in kept):
        raise ConfigError(
            f"{name} {distribution.version} does not record its files, as is so when it is "
            "installed editable: install it from a wheel (pip install .)"
        )
    return ((file, place) for file, place in kept if place.is_file())


def sources_of(module: str) -> list[tuple[str, Path]]:
    """Return the files of a module or package on Python's path: the relative path, and the file.

    Raises:
        ConfigError: there is no such module.
    """
    spec = find_spec(module)
    if spec is None or (spec.origin is None and not spec.submodule_search_locations):
        raise ConfigError(f"{module} is not installed whole: pip install --force {module}")
    if not spec.submodule_search_locations:
        place = Path(str(spec.origin))
        return [(place.name, place)]
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    named = [(f"{module}/{file.relative_to(folder).as_posix()}", file) for file in files]
    return [(name, file) for name, file in named if _is_source(name)]


def _parse(requirement: str) -> tuple[str, list[str]]:
    match = _REQUIREMENT.match(requirement)
    if match is None:
        raise ConfigError(f"{requirement!r} is not the name of a package")
    extras = [extra.strip() for extra in (match[2] or "").split(",")]
    return _normal(match[1]), [extra for extra in extras if extra]


def _find(name: str, requirement: str, needed_by: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        # A requirement with a condition is for another platform or Python, or an extra that is not
        # installed.
        if ";" in requirement:
            return None
        needed = f", which {needed_by} needs," if needed_by else ""
        raise ConfigError(f"{name}{needed} is not installed: pip install {name}") from None


def _needs(distribution: metadata.Distribution, extra: str) -> Iterator[str]:
    for requirement in distribution.requires or ():
        condition = requirement.partition(";")[2]
        asked = _EXTRA.search(condition)
        if (_normal(asked[1]) if asked else "") == _normal(extra):
            yield requirement


def _is_needed(file: str) -> bool:
    return _NOT_NEEDED.match(file) is None and _fits(file)


def _is_source(file: str) -> bool:
    return not file.endswith((".pyx", ".c")) and _fits(file)


def _fits(file: str) -> bool:
    """Return whether a file is not compiled, or is compiled for this Python."""
    return not file.endswith(".pyc") or f".{sys.implementation.cache_tag}." in file


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
