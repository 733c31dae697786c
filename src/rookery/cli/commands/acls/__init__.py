"""`rookery acls`: the access rules of any Kafka."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Add, remove and list access rules, and check a permission by them.",
    example="rookery acls add User:alice --topic birds --operation read",
)
