"""The work of `rookery spark`."""

from __future__ import annotations

import argparse
import os
import subprocess

from rookery.cli.command import print_json
from rookery.spark.contents import Contents
from rookery.spark.pack import pack
from rookery.spark.session import settings_for
from rookery.spark.submit import Submission


def pack_environment(args: argparse.Namespace) -> int:
    """Write the archive and say what is in it."""
    contents = Contents.of(also=args.add, provided=args.provided, without=args.without)
    made = pack(args.output, contents, with_python=args.with_python)
    if args.json:
        answer = {
            "path": str(made.path),
            "bytes": made.size,
            "packages": made.packages,
            "provided": made.provided,
        }
        print_json(answer)
    else:
        print(f"{made.path}: {made.size / 1e6:.0f} MB, {len(made.packages)} packages")
        if made.provided:
            names = ", ".join(f"{name} {version}" for name, version in made.provided.items())
            print(f"the hosts must have: {names}")
        print(f"run a program with it: rookery spark submit --archive {made.path} --master …")
    return 0


def submit(args: argparse.Namespace) -> int:
    """Run spark-submit and return its exit code, or print what would be run."""
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


def show_settings(args: argparse.Namespace) -> int:
    """Print settings as a properties file, or as JSON."""
    settings = settings_for(args.master)
    if args.json:
        print_json(settings)
    else:
        for name, value in settings.items():
            print(f"{name} {value}")
    return 0
