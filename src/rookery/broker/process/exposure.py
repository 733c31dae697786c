"""Refuses a broker that is open to a network by mistake: beyond loopback, clients must log in."""

from __future__ import annotations

from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import parse_address

_HINT: Final = "listen on 127.0.0.1, or allow it with --insecure if the network is trusted"


def check_exposure(settings: BrokerSettings) -> None:
    """Refuse a broker that is open to other hosts, unless the setting `insecure` allows it.

    Raises:
        ConfigError: a listener or HTTP has no authentication.
    """
    if not settings.insecure:
        _check_listeners(settings)
        _check_http(settings)


def _check_listeners(settings: BrokerSettings) -> None:
    listeners = list(settings.client_listeners().items())
    if settings.bootstrap:
        name, first = listeners[0]
        shared = parse_address(settings.bootstrap, "bootstrap", lowest_port=0)
        listeners.append((name, first.at(shared)))
    for name, config in listeners:
        if not config.address.is_loopback and not config.has_authentication:
            raise ConfigError(
                f"the listener {name} at {config.address.text} has no authentication, and other "
                "hosts can reach it; use sasl_ssl:// (`rookery broker --secure` sets it up), or "
                f"ssl:// with client_auth = required; otherwise {_HINT}",
                name="listen",
            )


def _check_http(settings: BrokerSettings) -> None:
    if not settings.http_listen or settings.http_token_file:
        return
    listen = parse_address(settings.http_listen, "http_listen", lowest_port=0)
    if not listen.is_loopback:
        raise ConfigError(
            f"metrics and health at {listen.text} are open to other hosts; set http_token_file, "
            f"or {_HINT}",
            name="http_listen",
        )
