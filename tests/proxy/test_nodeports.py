"""The port of each broker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.proxy.nodeports import NodePorts, PortRange

PORTS = PortRange(9093, 9102)


def test_node_id_chooses_the_port() -> None:
    ports = NodePorts(PORTS)

    assert [ports.assign(node) for node in (0, 3, 1001)] == [9093, 9096, 9094]
    assert ports.assign(3) == 9096
    assert ports.find(7) is None


def test_taken_port_gives_the_next_free_one() -> None:
    ports = NodePorts(PORTS)

    assert [ports.assign(node) for node in (1, 11, 2)] == [9094, 9095, 9096]


def test_processes_that_share_ports_refuse_what_they_may_see_differently() -> None:
    ports = NodePorts(PORTS, is_shared=True)
    ports.assign(1)

    with pytest.raises(ConfigError, match="9094 belongs to broker 1"):
        ports.assign(11)
    assert ports.assign(2) == 9095


@given(st.lists(st.integers(0, 2**31 - 1), max_size=len(PORTS), unique=True))
def test_every_broker_has_a_port_of_its_own(nodes: list[int]) -> None:
    ports = NodePorts(PORTS)

    given_ports = [ports.assign(node) for node in nodes]

    assert len(set(given_ports)) == len(nodes)
    assert all(PORTS.first <= port <= PORTS.last for port in given_ports)


def test_exhausted_range_is_reported() -> None:
    ports = NodePorts(PortRange(9093, 9093))
    ports.assign(1)

    with pytest.raises(ConfigError, match="broker 2 of the upstream gets no port"):
        ports.assign(2)


@pytest.mark.parametrize("text", ["", "9093", "9093-", "b-c", "9095-9093", "0-5", "9000-70000"])
def test_invalid_range_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="node_ports"):
        PortRange.parse(text)
