"""`rookery spark`: pack an environment for Spark's workers, run programs there, show settings."""

from __future__ import annotations

import argparse
from pathlib import Path

from rookery.cli import arguments
from rookery.cli.command import Subparsers, action
from rookery.cli.nested import add_nest, add_nested

_ARCHIVE = Path("rookery.tar.gz")


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    nest = add_nest(
        subparsers,
        "spark",
        summary="Pack an environment for Spark's workers, run programs there, show settings.",
        example="rookery spark pack && rookery spark submit --master spark://head:7077 job.py",
    )
    _add_pack(nest)
    _add_submit(nest)
    _add_settings(nest)


def _add_pack(nest: Subparsers) -> None:
    parser = add_nested(
        nest,
        "pack",
        action("spark", "pack_environment"),
        summary="Write rookery and what it needs into one archive, for hosts that have none of it.",
        example="rookery spark pack --output rookery.tar.gz --add mypackage",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=_ARCHIVE,
        metavar="FILE",
        help="the archive, a .tar.gz (default: %(default)s)",
    )
    parser.add_argument(
        "--add",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="an installed package of yours, with what it needs, or a module on Python's path; "
        "may be repeated",
    )
    parser.add_argument(
        "--provided",
        type=_names,
        default=(),
        metavar="PACKAGES",
        help="packages that all hosts have in these versions, with commas between, such as "
        "pyarrow,pandas: they are not packed",
    )
    parser.add_argument(
        "--without",
        type=_names,
        default=(),
        metavar="PACKAGES",
        help="packages that your programs do not use, such as deltalake: they are not packed",
    )
    parser.add_argument(
        "--with-python", action="store_true", help="this Python, too, for hosts that have no such"
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _add_submit(nest: Subparsers) -> None:
    parser = add_nested(
        nest,
        "submit",
        action("spark", "submit"),
        summary="Run a program on a Spark cluster whose hosts have no rookery.",
        example="rookery spark submit --master spark://head:7077 job.py birds",
    )
    parser.add_argument("program", type=Path, metavar="PROGRAM", help="a Python file")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="…", help="the program's own arguments"
    )
    parser.add_argument("--master", required=True, metavar="URL", help="spark://…, yarn, k8s://…")
    parser.add_argument(
        "--archive",
        type=Path,
        default=_ARCHIVE,
        metavar="FILE",
        help="what `rookery spark pack` wrote (default: %(default)s)",
    )
    parser.add_argument(
        "-c",
        "--conf",
        action="append",
        default=[],
        type=arguments.setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; may be repeated",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="a rookery.toml for all hosts, with [clusters.NAME] tables: secrets stay out of code",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the driver runs, and the archive is unpacked for it (default: here)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")


def _add_settings(nest: Subparsers) -> None:
    parser = add_nested(
        nest,
        "settings",
        action("spark", "show_settings"),
        summary="Show the Spark settings that make Python sources quick, for a server's own file.",
        example="rookery spark settings > conf/spark-defaults.conf",
    )
    parser.add_argument(
        "--master", default="yarn", metavar="URL", help="for which master (default: %(default)s)"
    )
