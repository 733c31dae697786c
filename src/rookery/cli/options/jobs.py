"""Options of all jobs, and options of all jobs that fill topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rookery.cli.command import CommandArguments
from rookery.cli.options.delivery import COMPRESSIONS
from rookery.cli.options.fields import option, part, switch
from rookery.cli.options.spark import SparkOptions
from rookery.cli.options.storage import STORAGE_HELP, STORAGE_TITLE, LogAddress
from rookery.cli.options.values import size
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.jobs import FillTarget

_SLICE_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class JobSparkOptions(SparkOptions):
    """The address of Spark: a master, or a Connect server."""

    remote: str | None = option(
        "--remote", metavar="URL", help="a Spark Connect server, such as sc://host"
    )


@dataclass(frozen=True, kw_only=True)
class JobArguments(CommandArguments):
    """The log, the Spark that runs the job, and the limits of a run."""

    dry_run: bool = switch("--dry-run", help="show what would be done without writing")
    max_bytes: int = option(
        "--max-bytes",
        type=size,
        default=0,
        metavar="SIZE",
        help="the maximum amount of data to read, such as 10GB (default: no limit)",
    )
    no_proof: bool = switch(
        "--no-proof",
        help="do not verify the result by reading it and comparing it with the original",
    )
    quiet: bool = switch("--quiet", help="do not show progress")
    spark: JobSparkOptions = part(JobSparkOptions, "Spark")
    log: LogAddress = part(LogAddress, STORAGE_TITLE, STORAGE_HELP)

    def check(self) -> None:
        """Check values that argparse cannot check.

        Raises:
            ConfigError: a number is out of bounds.
        """


@dataclass(frozen=True, kw_only=True)
class FillArguments(JobArguments):
    """How batches are written."""

    compression: str = option(
        "--compression",
        choices=COMPRESSIONS,
        default="none",
        help="the compression of batches (default: %(default)s)",
    )
    slice_bytes: int = option(
        "--slice-bytes",
        type=size,
        default=_SLICE_BYTES,
        metavar="SIZE",
        help="the amount of data per commit (default: 512MiB)",
    )

    def check(self) -> None:
        """Check values that argparse cannot check.

        Raises:
            ConfigError: a number is out of bounds.
        """
        if self.slice_bytes < 1:
            raise ConfigError(f"--slice-bytes {self.slice_bytes}: must be at least 1")


def offset_map_option(default: str = "none") -> Any:
    """Declare where the old and new offsets of records are written.

    Args:
        default: the description of the default in the help.
    """
    return option(
        "--offset-map",
        default="",
        metavar="FOLDER",
        help="the folder or URL for Parquet files that map old to new offsets "
        f"(default: {default})",
    )


@dataclass(frozen=True, kw_only=True)
class TargetTopic:
    """The new topic that a job fills."""

    to: str = option("--to", required=True, metavar="NEW", help="the new topic to create")
    offset_map: str = offset_map_option()
    partitions: int = option(
        "--partitions",
        type=int,
        required=True,
        metavar="N",
        help="the number of partitions of the new topic",
    )

    @property
    def map_folder(self) -> str:
        """The folder for old and new offsets; empty if there is none."""
        return self.offset_map


@dataclass(frozen=True, kw_only=True)
class FillTopicArguments(FillArguments):
    """How batches are written into one new topic."""

    target: TargetTopic = part(TargetTopic)

    def check(self) -> None:
        """Check values that argparse cannot check.

        Raises:
            ConfigError: a number is out of bounds.
        """
        super().check()
        check_partitions("--partitions", self.target.partitions, 1)

    def into(self) -> FillTarget:
        """Return the target topic in the form that jobs take."""
        from rookery.direct.layout import PackSettings
        from rookery.jobs import FillTarget

        target, packing = self.target, PackSettings(compression=self.compression)
        return FillTarget(
            target.to, target.partitions, target.map_folder, packing, self.slice_bytes
        )


def check_partitions(flag: str, number: int, least: int) -> None:
    """Check a number of partitions.

    Raises:
        ConfigError: it is out of bounds.
    """
    from rookery.direct.targets import MAX_PARTITIONS

    if not least <= number <= MAX_PARTITIONS:
        raise ConfigError(f"{flag} {number}: must be from {least} to {MAX_PARTITIONS}")
