"""What a server remembers about one client for as long as it is connected: plain data."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True)
class ClientSession:
    """One client's session: it begins and ends with the connection."""

    principal: str | None = None
    """The authenticated client, such as `User:alice`; None before the login."""
    software_name: str = ""
    """The client library, as its ApiVersions request says."""
    software_version: str = ""
    pending_write: asyncio.Future[None] | None = None
    """The client's last write that is not in the log's queue yet. Later writes must wait for it:
    a producer's sequences would come out of order otherwise."""
