"""The proxy of tests refuses settings that would let tests use each other's ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedproxy import ServedProxy, check_node_ports

MIRROR = VirtualClusterSettings(upstream="kafka:9092", listen=f"{HOST}:{free_port()}")


def test_mirror_nodes_without_ports_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"clusters\.one\.node_ports"):
        ServedProxy(settings=ProxySettings(clusters={"one": MIRROR}))


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(replace(MIRROR, node_ports="9100-9103"), id="ports"),
        pytest.param(replace(MIRROR, node_names="b-$(node_id).example"), id="names"),
        pytest.param(replace(MIRROR, nodes="proxy"), id="broker nodes"),
    ],
)
def test_clusters_that_need_no_further_ports_are_accepted(cluster: VirtualClusterSettings) -> None:
    check_node_ports(ProxySettings(clusters={"one": cluster}))
