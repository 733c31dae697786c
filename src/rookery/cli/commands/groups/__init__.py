"""`rookery groups`: the consumer groups of any Kafka."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="List, describe, reset and delete consumer groups.",
    example="rookery groups describe watchers",
)
