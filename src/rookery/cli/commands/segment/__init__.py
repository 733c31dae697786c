"""`rookery segment`: shows the contents of segment files, and closes segments early."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Dump segment files, or build segments from the current data of a topic.",
    example="rookery segment dump segment-00000000000000000000.kfs",
)
