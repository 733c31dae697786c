"""Addresses as users write them: `host:port`, or `[host]:port` for IPv6."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import NamedTuple

from rookery.errors import ConfigError


class Address(NamedTuple):
    """A host (name, IPv4 or IPv6 without brackets) and a port."""

    host: str
    port: int

    @property
    def text(self) -> str:
        """The text form, which `parse_address` accepts."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it; of names, only `localhost` counts."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


# A zone (%eth0) may follow an IPv6 address; names may carry underscores, as Docker's do.
_ADDRESS = re.compile(
    r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.\-]{1,32})?)\]|(?P<name>[\w.\-]{1,255}))"
    r":(?P<port>[0-9]{1,5})"
)


def parse_address(text: str, setting: str = "address", *, lowest_port: int = 1) -> Address:
    """Parse one `host:port`; for a listening address, port 0 means any free port.

    Raises:
        ConfigError: it is not an address; the message names the setting.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ConfigError(f"{setting}: {text!r} is not host:port; write IPv6 as [::1]:9092")
    port = int(match["port"])
    if not lowest_port <= port < 65536:
        raise ConfigError(
            f"{setting}: port {port} in {text!r} is not between {lowest_port} and 65535"
        )
    return Address(match["ipv6"] or match["name"], port)


def parse_addresses(text: str, setting: str = "bootstrap.servers") -> list[Address]:
    """Parse comma-separated addresses, without duplicates, in the order given.

    Raises:
        ConfigError: there is none, or one of them is not an address.
    """
    parts = [part.strip() for part in text.split(",")]
    addresses = [parse_address(part, setting) for part in parts if part]
    if not addresses:
        raise ConfigError(f"{setting}: name at least one broker as host:port")
    return list(dict.fromkeys(addresses))


def address_name(address: object) -> str:
    """Return a socket's address in its usual text form."""
    if isinstance(address, tuple) and len(address) >= 2:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return str(address or "unknown")
