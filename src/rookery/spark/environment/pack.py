"""Packs Rookery and its dependencies into one archive for Spark workers.

    PYSPARK_PYTHON=./environment/bin/python spark-submit --archives rookery.tar.gz#environment …

Spark unpacks it into the folder of each executor. `--py-files` is not sufficient: it does not
support compiled modules, and the process that plans a stream on the driver does not use it. The
archive contains

    lib/          the packages, with their compiled modules
    bin/python    starts this host's Python of the same version with them
    python/       that Python itself, if it is requested
"""

from __future__ import annotations

import compileall
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.spark.environment.contents import ArchiveContents
from rookery.spark.environment.packages import files_of

FOLDER: Final = "environment"
"""The name of the folder into which the archive is unpacked."""
PYTHON: Final = f"./{FOLDER}/bin/python"
"""The path of Python for Spark: on an executor, and on a driver that starts in the same folder."""
STAGE_PREFIX: Final = ".packing-"
"""The prefix of the folders in which archives are built; a killed process leaves one."""

_COMPRESSION: Final = 6
# All other imports on a worker depend on these.
_TRIED: Final = (
    "obstore, pyarrow.parquet, pyarrow.dataset, rookery.records.columns, rookery.spark.sparksession"
)
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_LAUNCHER: Final = f"""#!/bin/sh
# Start Python {_VERSION} with the packages next to this file: the packed one, or that of this host.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
fits() {{ "$1" -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] != "{_VERSION}")' 2>&-; }}
if [ -x "$here/python/bin/python{_VERSION}" ]; then
    python=$here/python/bin/python{_VERSION}
    LD_LIBRARY_PATH=$here/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
    export LD_LIBRARY_PATH
elif [ -n "$ROOKERY_PYTHON" ] && fits "$ROOKERY_PYTHON"; then python=$ROOKERY_PYTHON
elif command -v python{_VERSION} >/dev/null; then python=python{_VERSION}
elif fits python3; then python=python3
else
    echo "rookery: no Python {_VERSION} on $(hostname): install it, name it in ROOKERY_PYTHON," \\
        "or pack it too (rookery spark pack --with-python)" >&2
    exit 1
fi
PYTHONPATH=$here/lib${{PYTHONPATH:+:$PYTHONPATH}}
export PYTHONPATH
exec "$python" "$@"
"""


@dataclass(frozen=True, slots=True)
class PackedArchive:
    """An archive that was written, and its contents."""

    path: Path
    size: int
    packages: dict[str, str]
    """The version of each packed package."""
    provided: dict[str, str]
    """The version of each package that all hosts must have."""


def pack(target: Path, contents: ArchiveContents, *, with_python: bool = False) -> PackedArchive:
    """Write the archive.

    Args:
        target: the file; its name must end in .tar.gz or .tgz, because Spark checks that.
        contents: the packages and modules.
        with_python: also pack the interpreter and its library, for hosts without this Python
            version.

    Raises:
        ConfigError: a package cannot be packed, or the name has another ending.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise ConfigError(f"{target}: Spark unpacks only files named .tar.gz or .tgz")
    with tempfile.TemporaryDirectory(prefix=STAGE_PREFIX, dir=target.absolute().parent) as folder:
        stage, whole = Path(folder) / FOLDER, Path(folder) / target.name
        _stage_packages(stage / "lib", contents)
        _stage_launcher(stage / "bin" / "python")
        if with_python:
            _stage_python(stage / "python")
        _link_packages(Path(folder) / "provided", contents.provided)
        _try(stage / "bin" / "python", Path(folder) / "provided", contents.modules)
        with tarfile.open(whole, "w:gz", compresslevel=_COMPRESSION) as archive:
            archive.add(stage, arcname=".")
        whole.replace(target)
    versions = _versions(contents.packages)
    return PackedArchive(target, target.stat().st_size, versions, _versions(contents.provided))


def _versions(distributions: Mapping[str, metadata.Distribution]) -> dict[str, str]:
    return {name: distribution.version for name, distribution in sorted(distributions.items())}


def _stage_packages(lib: Path, contents: ArchiveContents) -> None:
    for file, place in contents.files():
        _copy(place, lib / file)
    # An executor starts in an empty folder each time; compiling there would take seconds.
    compileall.compile_dir(lib, quiet=2, legacy=False)


def _link_packages(folder: Path, distributions: Mapping[str, metadata.Distribution]) -> None:
    """Make a folder from which only the given packages of this host can be imported."""
    folder.mkdir()
    for distribution in distributions.values():
        for file, place in files_of(distribution):
            top = folder / file.partition("/")[0]
            if not top.exists():
                top.symlink_to(place.parents[file.count("/") - 1] if "/" in file else place)


def _stage_launcher(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(_LAUNCHER, "utf-8")
    path.chmod(0o755)


def _stage_python(home: Path) -> None:
    prefix = Path(sys.base_prefix)
    _copy((prefix / "bin" / f"python{_VERSION}").resolve(), home / "bin" / f"python{_VERSION}")
    for library in (prefix / "lib").glob(f"libpython{_VERSION}*.so*"):
        _copy(library, home / "lib" / library.name)
    shutil.copytree(
        prefix / "lib" / f"python{_VERSION}",
        home / "lib" / f"python{_VERSION}",
        ignore=shutil.ignore_patterns(
            "site-packages", "dist-packages", "test", "tests", "idlelib", "ensurepip", "config-*"
        ),
    )


def _try(launcher: Path, provided: Path, modules: Iterable[str]) -> None:
    """Check that the staged packages can be imported with only the provided packages."""
    imports = ", ".join([_TRIED, *modules])
    environ = {
        "PATH": "/usr/bin:/bin",
        "ROOKERY_PYTHON": sys.executable,
        "PYTHONPATH": str(provided),
    }
    done = subprocess.run(  # noqa: S603 (our own script)
        [str(launcher), "-S", "-c", f"import {imports}"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise ConfigError(
            f"the packed environment does not work: {done.stderr.strip().splitlines()[-1:]}; "
            "if a package is missing, reinstall rookery, so that its requirements are recorded "
            "(pip install --force-reinstall rookery), or name the package "
            "(rookery spark pack --add PACKAGE)"
        )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)  # keeps the mtime, by which Python validates compiled files
