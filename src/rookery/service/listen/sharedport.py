"""A port that several processes share (SO_REUSEPORT), reserved by the one that starts them."""

from __future__ import annotations

import socket
from typing import Any

from rookery.errors import ConfigError
from rookery.model.address import Address


def reserve_port(address: Address, setting: str) -> socket.socket:
    """Bind a shared port without listening, so that it stays reserved while workers restart.

    Args:
        address: port 0 lets the system choose one.
        setting: the name of the setting, for the error.

    Raises:
        ConfigError: the port is in use.
    """
    try:
        addresses = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, _, _, _, sockaddr = addresses[0]
        if address.port:
            # Try exclusively first: a shared bind would also succeed next to another server's
            # workers.
            with _bind(family, sockaddr, is_shared=False):
                pass
        return _bind(family, sockaddr, is_shared=True)
    except OSError as error:
        raise ConfigError(
            f"{setting}: cannot listen on {address.text}: {error.strerror or error}; "
            "set another host or port, or stop what uses this one"
        ) from error


def following_port(address: Address, steps: int, setting: str) -> Address:
    """Return the address of a worker: the same host, `steps` ports higher; port 0 stays 0.

    Raises:
        ConfigError: there is no such port.
    """
    if not address.port:
        return address
    if address.port + steps > 65535:
        raise ConfigError(f"{setting}: there is no port {steps} after {address.port}")
    return Address(address.host, address.port + steps)


def _bind(family: int, sockaddr: Any, *, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(sockaddr)
    except OSError:
        sock.close()
        raise
    return sock
