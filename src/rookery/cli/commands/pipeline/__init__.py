"""`rookery pipeline`: topics to tables as a file declares it."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Turn topics into tables on Spark, exactly once.",
    example="rookery pipeline run birds.toml --available-now",
)
