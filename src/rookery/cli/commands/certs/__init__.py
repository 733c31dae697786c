"""`rookery certs`: a small certificate authority for clusters that have none."""

from __future__ import annotations

from rookery.cli.command import CommandFamily

COMMAND = CommandFamily(
    summary="Create a certificate authority, issue certificates and show them.",
    example="rookery certs init && rookery certs issue broker-1 --host kafka-1.example.org",
)
