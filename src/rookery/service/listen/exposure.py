"""Refuses servers that are open to a network by mistake: beyond loopback, clients must log in."""

from __future__ import annotations

from typing import Final

from rookery.errors import ConfigError
from rookery.model.address import parse_address
from rookery.service.listen.listenersettings import ListenerConfig

_HINT: Final = "listen on 127.0.0.1, or allow it with --insecure if the network is trusted"


def check_listener(name: str, config: ListenerConfig, advice: str) -> None:
    """Refuse a listener that other hosts can reach, and that has no authentication.

    Args:
        name: of the listener.
        config: of the listener.
        advice: how to set up authentication, for the message.

    Raises:
        ConfigError: it is such a listener.
    """
    if not config.address.is_loopback and not config.has_authentication:
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
    if not http_listen or token_file:
        return
    listen = parse_address(http_listen, "http_listen", lowest_port=0)
    if not listen.is_loopback:
        raise ConfigError(
            f"metrics and health at {listen.text} are open to other hosts; set http_token_file, "
            f"or {_HINT}",
            name="http_listen",
        )
