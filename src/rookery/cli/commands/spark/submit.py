"""`rookery spark submit`: runs a program on a Spark cluster whose hosts lack rookery."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from rookery.cli.command import Command, CommandArguments
from rookery.cli.options.fields import option, positional, repeated, switch
from rookery.cli.options.values import setting


@dataclass(frozen=True, kw_only=True)
class SubmitProgram(CommandArguments):
    """The program to submit, and the cluster that runs it."""

    program: Path = positional("PROGRAM", "the Python program", type=Path)
    arguments: tuple[str, ...] = positional(
        "…", "the arguments of the program", nargs=argparse.REMAINDER
    )
    master: str = option(
        "--master",
        required=True,
        metavar="URL",
        help="the Spark master: spark://…, yarn or k8s://…",
    )
    archive: Path = option(
        "--archive",
        type=Path,
        default=Path("rookery.tar.gz"),
        metavar="FILE",
        help="the archive that `rookery spark pack` wrote (default: %(default)s)",
    )
    conf: tuple[tuple[str, str], ...] = repeated(
        "-c",
        "--conf",
        type=setting,
        metavar="NAME=VALUE",
        help="a Spark setting; may be repeated",
    )
    config: Path | None = option(
        "--config",
        type=Path,
        metavar="FILE",
        help="a rookery.toml for all hosts, with [clusters.NAME] tables, so that programs "
        "contain no secrets",
    )
    folder: Path = option(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="the working directory of the driver, where the archive is unpacked (default: the "
        "current directory)",
    )
    dry_run: bool = switch("--dry-run", help="print the commands without running them")


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
    summary="Run a program on a Spark cluster whose hosts do not have rookery installed.",
    example="rookery spark submit --master spark://head:7077 job.py birds",
)
