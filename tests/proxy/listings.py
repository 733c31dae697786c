"""Virtual clusters for tests, and the topics that their clients see."""

from __future__ import annotations

from dataclasses import replace

from rookery.proxy.settings import VirtualClusterSettings
from rookery.testing.ports import HOST, free_port, free_ports
from rookery.testing.servedbroker import ask
from rookery.wire.messages.metadata import METADATA, MetadataRequest


def topics(bootstrap: str) -> set[str]:
    """Return the topics of users."""
    response = ask(bootstrap, METADATA, 12, MetadataRequest(topics=None))
    return {each.name or "" for each in response.topics if not each.is_internal}


def cluster_at(upstream: str, **settings: object) -> VirtualClusterSettings:
    """Return the settings of a virtual cluster on free ports."""
    first = free_ports(2)
    cluster = VirtualClusterSettings(
        upstream=upstream, listen=f"{HOST}:{free_port()}", node_ports=f"{first}-{first + 1}"
    )
    return replace(cluster, **settings)  # type: ignore[arg-type]  # names and values of fields
