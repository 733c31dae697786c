"""`rookery spark`: Python environments, programs and settings for Spark clusters."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Pack an environment for Spark workers, submit programs and show Spark settings.",
    example="rookery spark pack && rookery spark submit --master spark://head:7077 job.py",
)
