"""`rookery segment dump`: shows the contents of a segment, and its damage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, positional, switch
from rookery.errors import ConfigError, Unavailable

if TYPE_CHECKING:
    from rookery.cli.output.segment import Files


@dataclass(frozen=True, kw_only=True)
class DumpSegment(CommandArguments):
    """The segment to show, and what to show of it."""

    file: str = positional(
        "FILE", "a .kfs file; the .index and .times files with the same name are read if they exist"
    )
    store: str | None = option(
        "--store",
        metavar="URL",
        help="read FILE as a key in this store, such as file:///srv/rookery",
    )
    records: bool = switch("--records", help="include the records of each batch")


def run(args: DumpSegment) -> int:
    """Show a segment; return 1 if it is damaged."""
    import asyncio

    from rookery.cli.output.segment import ENDINGS, as_json, as_text
    from rookery.formats.examine import examine

    stem = _stem(args.file)
    files = asyncio.run(_fetch(args.store, stem)) if args.store else _load(stem)
    named = args.file[len(stem) :]
    if files[named] is None:
        raise ConfigError(f"{args.file}: there is no such {'object' if args.store else 'file'}")
    examination = examine(*(files[ending] for ending in ENDINGS))
    if args.json:
        print_json(as_json(stem, files, examination, with_records=args.records))
    else:
        for line in as_text(stem, files, examination, with_records=args.records):
            print(line)
    return 1 if examination.faults else 0


def _stem(name: str) -> str:
    from rookery.cli.output.segment import ENDINGS

    for ending in ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    raise ConfigError(f"{name}: not a segment's file; their names end in {', '.join(ENDINGS)}")


def _load(stem: str) -> Files:
    from rookery.cli.output.segment import ENDINGS

    files: Files = {}
    for ending in ENDINGS:
        path = Path(stem + ending)
        try:
            files[ending] = path.read_bytes() if path.exists() else None
        except OSError as error:
            raise Unavailable(f"{path}: cannot be read: {error.strerror}") from error
    return files


async def _fetch(url: str, stem: str) -> Files:
    from rookery.cli.output.segment import ENDINGS
    from rookery.store.open import open_store
    from rookery.store.port import NotFound

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


COMMAND = Command(
    arguments=DumpSegment,
    run=run,
    summary="Show the contents of a segment and report every fault.",
    example="rookery segment dump segment-00000000000000000000.kfs --records",
)
