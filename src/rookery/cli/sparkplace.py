"""The location of a command's tasks, and the environment that is sent there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from rookery.cli.options.spark import SparkOptions
from rookery.errors import ConfigError
from rookery.spark.checkpoint import is_local
from rookery.spark.environment.archivecache import ArchiveCache, cache_folder
from rookery.spark.environment.contents import ArchiveContents, carrier_of
from rookery.spark.environment.pack import pack


def find_archive(
    options: SparkOptions, modules: Iterable[str] = (), *, remote: str | None = None
) -> Path | None:
    """Return the environment to send to Spark's hosts; None if they need none.

    Without `--archive` it is this process's own environment. If it was not packed before, it is
    packed now, and the user sees a message.

    Args:
        options: where Spark runs.
        modules: modules of the user's that the tasks import.
        remote: a Connect server that runs the tasks, if it is one.

    Raises:
        ConfigError: it cannot be packed or kept, or `--archive` is given with `--remote`.
    """
    if remote:
        if options.archive:
            raise ConfigError("--archive with --remote: a server has its own environment")
        return None
    if options.installed or is_local(options.master or "local"):
        return None
    return Path(options.archive) if options.archive else _pack(modules)


def _pack(modules: Iterable[str]) -> Path:
    contents = ArchiveContents.of(also=sorted({carrier_of(module) for module in modules}))
    cache = ArchiveCache(cache_folder(os.environ), _tell)  # noqa: TID251 (XDG_CACHE_HOME)

    def write(target: Path) -> None:
        _tell(f"packing this Python environment for Spark's hosts, once, into {target}")
        made = pack(target, contents)
        _tell(f"packed {made.size / 1e6:.0f} MB, {len(made.packages)} packages")

    return cache.get(contents.fingerprint(), write)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
