"""A broker as its clients see it."""

from __future__ import annotations

from typing import NamedTuple

from rookery.model.address import Address


class Node(NamedTuple):
    """A broker's id and its listening address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """The address to connect to."""
        return Address(self.host, self.port)

    @property
    def text(self) -> str:
        """The node for logs and messages."""
        return f"{self.id} ({self.address.text})"
