"""`rookery quotas`: the client quotas of any Kafka."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="List, set and remove client quotas.",
    example="rookery quotas set --for-user alice producer_byte_rate=1048576",
)
