"""Ports that several processes share."""

from __future__ import annotations

import socket

import pytest

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.service.listen.sharedport import following_port, reserve_port
from rookery.testing.ports import HOST


def test_reserved_port_can_be_shared_but_not_reserved_again() -> None:
    with reserve_port(Address(HOST, 0), "listen") as reserved:
        port = reserved.getsockname()[1]
        with socket.socket() as worker:
            worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            worker.bind((HOST, port))
            worker.listen()

            with pytest.raises(ConfigError, match=f"proxy_listen: cannot listen on {HOST}:{port}"):
                reserve_port(Address(HOST, port), "proxy_listen")


def test_workers_have_consecutive_ports() -> None:
    address = Address("kafka.example", 9092)
    assert following_port(address, 3, "listen") == Address("kafka.example", 9095)
    assert following_port(Address(HOST, 0), 3, "listen") == Address(HOST, 0)
    with pytest.raises(ConfigError, match="listen: there is no port 1 after 65535"):
        following_port(Address(HOST, 65535), 1, "listen")
