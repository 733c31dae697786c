"""Contents of a packed environment: installed packages, and modules found by import."""

from __future__ import annotations

import hashlib
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rookery.spark.environment.packages import closure, files_of, sources_of

EXTRAS: Final = ("decode", "etcd", "spark", "tables")
"""The optional dependencies that are packed if they are installed."""

# Found by import, because an editable installation does not record its files.
_OURS: Final = ("rookery", "pyspark_rookery")
# Spark brings its own version, which fits the cluster. DuckDB writes to a file of one host.
_LEFT_OUT: Final = frozenset({"pyspark", "py4j", "duckdb"})
_NAME: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class ArchiveContents:
    """The packages and modules of a packed environment, before anything is copied."""

    packages: Mapping[str, metadata.Distribution]
    provided: Mapping[str, metadata.Distribution]
    """Packages that all hosts must have, in the same versions as this host."""
    modules: tuple[str, ...]
    """Modules that are found by import, because no package records their files."""

    @classmethod
    def of(
        cls,
        extras: Iterable[str] = EXTRAS,
        also: Iterable[str] = (),
        provided: Collection[str] = (),
        without: Collection[str] = (),
    ) -> ArchiveContents:
        """Choose what to pack.

        Args:
            extras: Rookery's optional dependencies to pack, if they are installed.
            also: more installed packages, with their dependencies, or modules on Python's path.
            provided: packages that the hosts have, in the same versions as this host; they and
                their exclusive dependencies are not packed.
            without: packages that are not used; they and their exclusive dependencies are not
                packed.

        Raises:
            ConfigError: a package is not installed.
        """
        also = [name for name in also if name not in sys.stdlib_module_names]
        theirs = closure(provided, left_out=_LEFT_OUT)
        modules = tuple(sorted(name for name in set(also) if _is_module(name)))
        wanted = [f"rookery[{','.join(extras)}]", *(name for name in also if name not in modules)]
        ours = closure(wanted, left_out={*_LEFT_OUT, *theirs, *without})
        return cls(ours, theirs, modules)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files to pack: the path below `lib`, and the source file.

        Raises:
            ConfigError: a package does not record its files, or a module is missing.
        """
        for name, package in self.packages.items():
            if name != "rookery":
                yield from files_of(package)
        for module in (*_OURS, *self.modules):
            yield from sources_of(module)

    def fingerprint(self) -> str:
        """Return a hash that changes when an archive of these contents would.

        A package's RECORD has a hash of each file. For modules, file sizes and modification times
        are used.
        """
        digest = hashlib.blake2b(digest_size=10)
        for line in self._facts():
            digest.update(f"{line}\n".encode())
        return digest.hexdigest()

    def _facts(self) -> Iterator[str]:
        yield f"{sys.implementation.cache_tag} {sysconfig.get_platform()}"
        for name, package in sorted(self.packages.items()):
            yield f"{name} {package.version}"
            if name != "rookery":
                yield package.read_text("RECORD") or ""
        for module in (*_OURS, *self.modules):
            for file, place in sources_of(module):
                if not file.endswith(".pyc"):
                    status = place.stat()
                    yield f"{file} {status.st_size} {status.st_mtime_ns}"


def carrier_of(module: str) -> str:
    """Return the installed package that contains a module, else the top-level module."""
    top = module.partition(".")[0]
    return next(iter(metadata.packages_distributions().get(top, ())), top)


def _is_module(name: str) -> bool:
    """Return whether a name is a module on Python's path and not an installed package."""
    if _NAME.fullmatch(name) is None:
        return False
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return find_spec(name) is not None
    return False
