"""`rookery pipeline`: pipelines from topics to tables, as a file declares them."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Write topics to tables on Spark, exactly once.",
    example="rookery pipeline run birds.toml --available-now",
)
