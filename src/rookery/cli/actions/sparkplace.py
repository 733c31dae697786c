"""Where the tasks of a command run, and what is sent there."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from rookery.errors import ConfigError
from rookery.spark.archivecache import ArchiveCache, cache_folder
from rookery.spark.checkpoint import is_local
from rookery.spark.contents import Contents, carrier_of
from rookery.spark.pack import pack


def find_archive(args: argparse.Namespace, modules: Iterable[str] = ()) -> Path | None:
    """Return the environment to send to Spark's hosts; None if they need none.

    Without `--archive` it is this process's own environment. It is packed if that was not done
    before, which the user is told.

    Args:
        args: of a command that has the arguments of `add_spark`.
        modules: modules of the user's that the tasks import.

    Raises:
        ConfigError: it cannot be packed or kept, or `--archive` is given with `--remote`.
    """
    if getattr(args, "remote", None):
        if args.archive:
            raise ConfigError("--archive with --remote: a server has its own environment")
        return None
    if args.installed or is_local(args.master or "local"):
        return None
    return Path(args.archive) if args.archive else _packed(modules)


def _packed(modules: Iterable[str]) -> Path:
    contents = Contents.of(also=sorted({carrier_of(module) for module in modules}))
    cache = ArchiveCache(cache_folder(os.environ), _tell)  # noqa: TID251 (XDG_CACHE_HOME)

    def write(target: Path) -> None:
        _tell(f"packing this Python environment for Spark's hosts, once, into {target}")
        made = pack(target, contents)
        _tell(f"packed {made.size / 1e6:.0f} MB, {len(made.packages)} packages")

    return cache.get(contents.fingerprint(), write)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
