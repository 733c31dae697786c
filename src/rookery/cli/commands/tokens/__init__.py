"""`rookery tokens`: delegation tokens, with which jobs log in as their owner."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Create, renew, expire and list delegation tokens.",
    example="rookery tokens create --hmac-file token.txt --client-config alice.properties",
)
