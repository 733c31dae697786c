"""Judges which clients can use a server: by its listeners, and by its HTTP endpoints.

Servers that are open to a network by mistake are refused. `rookery doctor` reports all of them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from rookery.errors import ConfigError
from rookery.model.address import parse_address
from rookery.service.listen.listenersettings import ListenerConfig

_HINT: Final = "listen on 127.0.0.1, or allow it with --insecure if the network is trusted"


class ListenerExposure(Enum):
    """The clients that can use a listener."""

    CLOSED = "clients must log in"
    READABLE = "not encrypted, and other hosts can connect"
    """Clients must log in, but the network between sees what they send."""
    LOCAL = "no authentication; only this host can connect"
    OPEN = "no authentication, and other hosts can connect"


class HttpExposure(Enum):
    """The clients that can use the HTTP endpoints."""

    OFF = "off"
    CLOSED = "requests need a token"
    LOCAL = "no token; only this host can connect"
    OPEN = "no token, and other hosts can connect"


def judge_listener(config: ListenerConfig) -> ListenerExposure:
    """Return which clients can use a listener with these settings."""
    is_local = config.address.is_loopback
    if not config.has_authentication:
        return ListenerExposure.LOCAL if is_local else ListenerExposure.OPEN
    is_readable = not config.protocol.has_tls and not is_local
    return ListenerExposure.READABLE if is_readable else ListenerExposure.CLOSED


def judge_http(http_listen: str, token_file: str) -> HttpExposure:
    """Return which clients can use HTTP endpoints with these settings."""
    if not http_listen:
        return HttpExposure.OFF
    if token_file:
        return HttpExposure.CLOSED
    listen = parse_address(http_listen, "http_listen", lowest_port=0)
    return HttpExposure.LOCAL if listen.is_loopback else HttpExposure.OPEN


def check_listener(name: str, config: ListenerConfig, advice: str) -> None:
    """Refuse a listener that other hosts can reach, and that has no authentication.

    Args:
        name: the name of the listener.
        config: the configuration of the listener.
        advice: how to set up authentication, for the message.

    Raises:
        ConfigError: it is such a listener.
    """
    if judge_listener(config) is ListenerExposure.OPEN:
        raise ConfigError(
            f"the listener {name} at {config.address.text} has no authentication, and other "
            f"hosts can reach it; {advice}; otherwise {_HINT}",
            name="listen",
        )


def check_http(http_listen: str, token_file: str) -> None:
    """Refuse HTTP endpoints that other hosts can read without a token.

    Raises:
        ConfigError: they can.
    """
    if judge_http(http_listen, token_file) is HttpExposure.OPEN:
        listen = parse_address(http_listen, "http_listen", lowest_port=0)
        raise ConfigError(
            f"metrics and health at {listen.text} are open to other hosts; set http_token_file, "
            f"or {_HINT}",
            name="http_listen",
        )
