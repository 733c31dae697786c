"""The principal of a request that a broker forwards inside Envelope (KIP-590)."""

from __future__ import annotations

from rookery.wire.buffer import Buffer
from rookery.wire.message import Message
from rookery.wire.protocols import versionedbytes


class DefaultPrincipalData(Message, versions=range(1), flexible=0):
    """A principal as Kafka's own principal builder writes it."""

    type_: str  # "User", unless a plugin has other ideas
    name: str
    token_authenticated: bool  # whether a delegation token proved it


def read_principal(buffer: Buffer) -> DefaultPrincipalData:
    """Read a principal.

    Raises:
        ProtocolError: the bytes are not a principal.
        ApiError: UNSUPPORTED_VERSION, if the version is newer than ours.
    """
    return versionedbytes.read_exactly(DefaultPrincipalData, buffer)[0]


def write_principal(principal: DefaultPrincipalData, version: int = 0) -> bytes:
    """Write a principal, version first."""
    return versionedbytes.write(principal, version)
