"""`rookery spark`: pack an environment for Spark's workers, run programs there, show settings."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Pack an environment for Spark's workers, run programs there, show settings.",
    example="rookery spark pack && rookery spark submit --master spark://head:7077 job.py",
)
