"""`rookery topics`: the topics of any Kafka."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="List, create, describe, delete and alter topics.",
    example="rookery topics create birds --partitions 4",
)
