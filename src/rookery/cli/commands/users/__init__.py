"""`rookery users`: the users of any Kafka that log in with SCRAM."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Add, remove and list SCRAM users.",
    example="rookery users add alice",
)
