"""The work of `rookery segment`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from rookery.cli.actions.segmentview import ENDINGS, Files, as_json, as_text
from rookery.cli.command import print_json
from rookery.errors import ConfigError, Unavailable
from rookery.formats.examine import examine
from rookery.store.open import open_store
from rookery.store.port import NotFound


def dump(args: argparse.Namespace) -> int:
    """Show a segment; the exit code tells whether it is sound."""
    stem = _stem(args.file)
    files = asyncio.run(_fetch(args.store, stem)) if args.store else _load(stem)
    named = args.file[len(stem) :]
    if files[named] is None:
        raise ConfigError(f"{args.file}: there is no such {'object' if args.store else 'file'}")
    found = examine(*(files[ending] for ending in ENDINGS))
    if args.json:
        print_json(as_json(stem, files, found, with_records=args.records))
    else:
        for line in as_text(stem, files, found, with_records=args.records):
            print(line)
    return 1 if found.faults else 0


def _stem(name: str) -> str:
    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    raise ConfigError(f"{name}: not a segment's file; their names end in {', '.join(ENDINGS)}")


def _load(stem: str) -> Files:
    files: Files = {}
    for ending in ENDINGS:
        path = Path(stem + ending)
        try:
            files[ending] = path.read_bytes() if path.exists() else None
        except OSError as error:
            raise Unavailable(f"{path}: cannot be read: {error.strerror}") from error
    return files


async def _fetch(url: str, stem: str) -> Files:
    store = open_store(url)
    files: Files = {}
    try:
        for ending in ENDINGS:
            try:
                files[ending] = await store.read(stem + ending)
            except NotFound:
                files[ending] = None
    except ValueError as error:
        raise ConfigError(str(error)) from error
    finally:
        await store.close()
    return files
