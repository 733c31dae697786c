# ruff: noqa: N999 (a module is named as its command is)
"""`rookery job import`: writes rows of Parquet files or JSON lines into a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rookery.cli.command import Command
from rookery.cli.options.fields import option, positional
from rookery.cli.options.jobs import FillArguments, check_partitions


@dataclass(frozen=True, kw_only=True)
class ImportRows(FillArguments):
    """Which files, into which topic."""

    path: str = positional("PATH", "a file, a folder or a glob pattern")
    topic: str = option("--topic", required=True, metavar="TOPIC", help="the topic to write to")
    format: Literal["parquet", "json"] = option(
        "--format",
        choices=("parquet", "json"),
        default="parquet",
        help="the format of the files (default: %(default)s)",
    )
    key: str = option("--key", default="", metavar="COLUMN", help="the column with the record key")
    value: str = option(
        "--value",
        default="",
        metavar="COLUMN",
        help="the column with the record value (default: all columns, as JSON)",
    )
    timestamp: str = option(
        "--timestamp", default="", metavar="COLUMN", help="the column with the record timestamp"
    )
    create_partitions: int = option(
        "--create-partitions",
        type=int,
        default=0,
        metavar="N",
        help="create the topic with N partitions if it does not exist",
    )
    name: str = option(
        "--name",
        default="",
        metavar="TEXT",
        help="a name for the job, by which a later run resumes it",
    )

    def check(self) -> None:
        """Check the values that argparse cannot check.

        Raises:
            ConfigError: a number is out of bounds.
        """
        super().check()
        check_partitions("--create-partitions", self.create_partitions, 0)


def run(args: ImportRows) -> int:
    """Write the rows of files into a topic."""
    from rookery import jobs
    from rookery.cli.jobs import run_job
    from rookery.direct.layout import PackSettings
    from rookery.jobs import FileImport, ImportFiles

    files = ImportFiles(args.path, args.format, args.key, args.value, args.timestamp)
    packing = PackSettings(compression=args.compression)
    into = FileImport(args.topic, args.create_partitions, args.name, packing, args.slice_bytes)
    return run_job(
        "import",
        args,
        lambda spark, place, plan: jobs.import_files(spark, place, files, into, plan),
    )


COMMAND = Command(
    arguments=ImportRows,
    run=run,
    summary="Write the rows of Parquet files or JSON lines into a topic.",
    example="rookery job import ./events --format json --topic events --key user_id",
)
