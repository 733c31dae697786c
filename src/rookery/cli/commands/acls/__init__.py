"""`rookery acls`: the access rules of any Kafka."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Add, remove and list access rules (ACLs), and check permissions.",
    example="rookery acls add User:alice --topic birds --operation read",
)
