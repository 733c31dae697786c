"""`rookery spark submit`: a program on hosts that have no rookery."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import option, positional, repeated, switch
from rookery.cli.options.values import setting


@dataclass(frozen=True, kw_only=True)
class SubmitProgram(CommandArguments):
    """Which program, and where it runs."""

    program: Path = positional("PROGRAM", "a Python file", type=Path)
    arguments: tuple[str, ...] = positional(
        "…", "the program's own arguments", nargs=argparse.REMAINDER
    )
    master: str = option("--master", required=True, metavar="URL", help="spark://…, yarn, k8s://…")
    archive: Path = option(
        "--archive",
        type=Path,
        default=Path("rookery.tar.gz"),
        metavar="FILE",
        help="what `rookery spark pack` wrote (default: %(default)s)",
    )
    conf: tuple[tuple[str, str], ...] = repeated(
        "-c",
        "--conf",
        type=setting,
        metavar="NAME=VALUE",
        help="a setting of Spark; may be repeated",
    )
    config: Path | None = option(
        "--config",
        type=Path,
        metavar="FILE",
        help="a rookery.toml for all hosts, with [clusters.NAME] tables: secrets stay out of code",
    )
    folder: Path = option(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where the driver runs, and the archive is unpacked for it (default: here)",
    )
    dry_run: bool = switch("--dry-run", help="only print the commands")


def run(args: SubmitProgram) -> int:
    """Run spark-submit and return its exit code, or print what would be run."""
    import os
    import subprocess

    from rookery.spark.environment.submit import Submission

    submission = Submission(
        program=args.program,
        archive=args.archive,
        master=args.master,
        arguments=args.arguments,
        settings=dict(args.conf),
        folder=args.folder,
        config=args.config,
    )
    ours = os.environ  # noqa: TID251 (all of it is passed on)
    if args.dry_run:
        print(submission.recipe(ours))
        return 0
    submission.prepare()
    command, environ = submission.command(), submission.environ(ours)
    return subprocess.call(command, cwd=args.folder, env=environ)  # noqa: S603 (the user's program)


COMMAND = Command(
    arguments=SubmitProgram,
    run=run,
    summary="Run a program on a Spark cluster whose hosts have no rookery.",
    example="rookery spark submit --master spark://head:7077 job.py birds",
)
