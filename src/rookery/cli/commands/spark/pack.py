"""`rookery spark pack`: packs the Python environment into an archive for Spark's hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option, repeated, switch
from rookery.cli.options.values import names


@dataclass(frozen=True, kw_only=True)
class PackEnvironment(CommandArguments):
    """The files to pack, and the archive to write."""

    output: Path = option(
        "-o",
        "--output",
        type=Path,
        default=Path("rookery.tar.gz"),
        metavar="FILE",
        help="the archive, a .tar.gz (default: %(default)s)",
    )
    add: tuple[str, ...] = repeated(
        "--add",
        metavar="PACKAGE",
        help="an additional installed package, with its dependencies, or a module on Python's "
        "path; may be repeated",
    )
    provided: tuple[str, ...] = option(
        "--provided",
        type=names,
        default=(),
        metavar="PACKAGES",
        help="packages to leave out because all hosts have these versions, separated by "
        "commas, such as pyarrow,pandas",
    )
    without: tuple[str, ...] = option(
        "--without",
        type=names,
        default=(),
        metavar="PACKAGES",
        help="packages to leave out because the programs do not use them, such as deltalake",
    )
    with_python: bool = switch(
        "--with-python", help="include this Python interpreter, for hosts without one"
    )


def run(args: PackEnvironment) -> int:
    """Write the archive and print what is in it."""
    from rookery.spark.environment.contents import ArchiveContents
    from rookery.spark.environment.pack import pack

    contents = ArchiveContents.of(also=args.add, provided=args.provided, without=args.without)
    made = pack(args.output, contents, with_python=args.with_python)
    if args.json:
        answer = {
            "path": str(made.path),
            "bytes": made.size,
            "packages": made.packages,
            "provided": made.provided,
        }
        print_json(answer)
        return 0
    print(f"{made.path}: {made.size / 1e6:.0f} MB, {len(made.packages)} packages")
    if made.provided:
        versions = ", ".join(f"{name} {version}" for name, version in made.provided.items())
        print(f"the hosts must have: {versions}")
    print(f"run a program with it: rookery spark submit --archive {made.path} --master …")
    return 0


COMMAND = Command(
    arguments=PackEnvironment,
    run=run,
    summary="Pack rookery and its dependencies into an archive for Spark hosts.",
    example="rookery spark pack --output rookery.tar.gz --add mypackage",
)
