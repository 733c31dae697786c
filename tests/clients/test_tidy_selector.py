"""The sockets that kafka-python forgets are closed with its selector."""

from __future__ import annotations

import gc
import selectors
import socket
import warnings

from kafka.net.inet import create_connection
from kafka.net.selector import NetworkSelector

from tests.kafkapython import TidySelector


def _leaks(
    selector: type[selectors.BaseSelector],
) -> list[str]:
    """Close a client while it connects; return the warnings of sockets left open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        net = NetworkSelector(selector=selector)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net.call_soon(create_connection(net, host, port))
            net.poll(timeout_ms=0)
            net.close()
            del net
            gc.collect()
    return [
        str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning)
    ]


def test_socket_of_a_cancelled_connection_is_closed() -> None:
    # If this is 0, kafka-python closes its sockets itself, and tests/kafkapython.py can be deleted.
    assert len(_leaks(selectors.DefaultSelector)) == 1
    assert _leaks(TidySelector) == []
