"""The data that a server keeps about one client while it is connected."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

# These names appear in metrics and logs (KIP-511).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@dataclass(slots=True)
class ClientSession:
    """One client's session: it begins and ends with the connection."""

    principal: str | None = None
    """The authenticated client, such as `User:alice`; None before the login."""
    listener: str = ""
    """The name of the listener that the client has connected to."""
    host: str = ""
    """The client's address, without its port."""
    server_name: str = ""
    """The name for which the client has asked in its TLS handshake (SNI), where it is noted."""
    mechanism: str = ""
    """The SASL mechanism of the last login; empty without one."""
    has_delegation_token: bool = False
    """Whether the last login was with a delegation token."""
    expires_ms: int = 0
    """The monotonic time at which the login expires; 0 for never."""
    software_name: str = ""
    """The client library, according to its ApiVersions request."""
    software_version: str = ""
    pending_write: asyncio.Future[None] | None = None
    """The client's last write that is not in the log's queue yet. Later writes must wait for it;
    otherwise a producer's sequences would be out of order."""
    fetch_access: tuple[int, Hashable] | None = None
    """The fetch session that the client has opened, and the access rules at that time."""

    def note_software(self, name: str, version: str) -> bool:
        """Record the client library; return False, and record nothing, if a name is not valid."""
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return False
        self.software_name, self.software_version = name, version
        return True
