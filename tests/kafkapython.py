"""kafka-python's clients, with sockets that are closed when the client is.

kafka-python 3.0 drops a socket without closing it if a client is closed while one of its
connections is being opened, or has bytes to send. The test that runs when the socket is collected
fails for it. Tests create kafka-python's clients from this module.
"""

from __future__ import annotations

import selectors
import socket
from typing import Any

import kafka


class TidySelector(selectors.DefaultSelector):
    """A selector that closes the sockets it has seen when it is closed itself."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: set[socket.socket] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if isinstance(fileobj, socket.socket):
            self._sockets = {each for each in self._sockets if each.fileno() >= 0} | {fileobj}
        return super().register(fileobj, events, data)

    def close(self) -> None:
        super().close()
        for each in self._sockets:
            each.close()


class KafkaConsumer(kafka.KafkaConsumer):  # type: ignore[misc]  # it ships no types
    DEFAULT_CONFIG = kafka.KafkaConsumer.DEFAULT_CONFIG | {"selector": TidySelector}


class KafkaProducer(kafka.KafkaProducer):  # type: ignore[misc]  # it ships no types
    DEFAULT_CONFIG = kafka.KafkaProducer.DEFAULT_CONFIG | {"selector": TidySelector}


class KafkaAdminClient(kafka.KafkaAdminClient):  # type: ignore[misc]  # it ships no types
    DEFAULT_CONFIG = kafka.KafkaAdminClient.DEFAULT_CONFIG | {"selector": TidySelector}
