"""`rookery segment`: look into the segments that the log is kept in, and make them now."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Look into segment files, or make them of what a topic holds now.",
    example="rookery segment dump segment-00000000000000000000.kfs",
)
