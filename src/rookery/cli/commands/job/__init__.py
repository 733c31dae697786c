"""`rookery job`: upkeep of a log on Spark, and records moved in bulk."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Run jobs on Spark that maintain the log, or copy, import or reorder topics.",
    example="rookery job compact orders --store s3://bucket/log --dry-run",
)
