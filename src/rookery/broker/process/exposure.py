"""Refuses a broker that is open to a network by mistake: beyond loopback, clients must log in."""

from __future__ import annotations

from typing import Final

from rookery.broker.settings import BrokerSettings
from rookery.model.address import parse_address
from rookery.service.listen.exposure import check_http, check_listener

_ADVICE: Final = (
    "use sasl_ssl:// (`rookery broker --secure` sets it up), or ssl:// with client_auth = required"
)


def check_exposure(settings: BrokerSettings) -> None:
    """Refuse a broker that is open to other hosts, unless the setting `insecure` allows it.

    Raises:
        ConfigError: a listener or HTTP has no authentication.
    """
    if settings.insecure:
        return
    listeners = list(settings.client_listeners().items())
    if settings.bootstrap:
        name, first = listeners[0]
        shared = parse_address(settings.bootstrap, "bootstrap", lowest_port=0)
        listeners.append((name, first.at(shared)))
    for name, config in listeners:
        check_listener(name, config, _ADVICE)
    check_http(settings.http_listen, settings.http_token_file)
