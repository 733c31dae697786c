"""`rookery job`: upkeep of a log on Spark, and records moved in bulk."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Compact, merge, check, expire, repartition, copy, import or replay, on Spark.",
    example="rookery job compact orders --store s3://bucket/log --dry-run",
)
