"""A proxy for Kafka clusters: it advertises its own addresses, and filters can change what passes.

A *virtual cluster* is what the proxy's clients see. Its *upstream* is the Kafka cluster that the
proxy connects to. In mirror mode, every broker of the upstream has a port of its own here, and each
client connection has one connection to that broker.

    bytes ──► Listener ──► VirtualCluster ──► ClientLink ──► Upstream ──► broker
                                                  │
                                   PassageTable, LinkState, filters

With broker nodes (`proxy.nodes`), the proxy's instances are the brokers that clients see, and a
`NodeLink` divides requests among several connections instead.

Requests and responses of mirror mode pass without being decoded, unless they hold addresses of
brokers or a filter wants them. This package exports what filters need; the guide is
docs/guide/proxy.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.proxy.filterapi import (
        ANY,
        FORWARD,
        Answer,
        Close,
        Drop,
        Filter,
        FilterContext,
        Forward,
        Verdict,
        if_noted,
        on_request,
        on_response,
    )

__all__ = [
    "ANY",
    "FORWARD",
    "Answer",
    "Close",
    "Drop",
    "Filter",
    "FilterContext",
    "Forward",
    "Verdict",
    "if_noted",
    "on_request",
    "on_response",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "rookery.proxy.filterapi": [
            "ANY",
            "FORWARD",
            "Close",
            "Drop",
            "Filter",
            "FilterContext",
            "Forward",
            "Answer",
            "Verdict",
            "if_noted",
            "on_request",
            "on_response",
        ]
    },
)
