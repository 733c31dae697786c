"""Processes of the cluster: their identity, their liveness and the validity of their entries.

An incarnation is one life of one process. Its entries are numbered, and only the next number of a
live incarnation counts; every other entry is void.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rookery.cluster.events.brokerevents import (
    BrokerRegistered,
    EndpointRow,
    ProcessRegistered,
)


class BrokerEndpoint(NamedTuple):
    """The address of one listener of a broker."""

    listener: str
    protocol: int
    """0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""
    host: str
    port: int


class LiveBroker(NamedTuple):
    """A broker that is registered and has neither left nor expired."""

    node_id: int
    incarnation: int
    host: str
    port: int
    rack: str | None
    process_id: bytes
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """The addresses of its listeners; empty if it has registered only one address."""

    def at(self, listener: str) -> LiveBroker | None:
        """Return the broker with the address of one listener; None if it has no such listener."""
        if not self.endpoints:
            return self
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return self._replace(host=endpoint.host, port=endpoint.port)
        return None


class LiveProcess(NamedTuple):
    """A live process that is not a broker, such as the one that rewrites the log."""

    incarnation: int
    purpose: str
    process_id: bytes


class Brokers:
    """The live incarnations, by number and by node id."""

    __slots__ = ("by_node", "processes", "sequences", "stamps")

    def __init__(self) -> None:
        self.by_node: dict[int, LiveBroker] = {}
        self.processes: dict[int, LiveProcess] = {}
        """The processes that are not brokers, by incarnation."""
        self.sequences: dict[int, int] = {}
        """The sequence of the last valid entry of each live incarnation."""
        self.stamps: dict[int, int] = {}
        """The clock of each live incarnation, according to its last entry."""

    @property
    def nodes(self) -> list[int]:
        """The node ids of live brokers, in order."""
        return sorted(self.by_node)

    def take(self, incarnation: int, sequence: int, stamp_ms: int) -> bool:
        """Accept an entry, if it is the next one of a live incarnation."""
        if self.sequences.get(incarnation) != sequence - 1:
            return False
        self.sequences[incarnation] = sequence
        self.stamps[incarnation] = stamp_ms
        return True

    def register(self, incarnation: int, event: BrokerRegistered, stamp_ms: int) -> LiveBroker:
        """Add a broker, replacing one with the same node id."""
        node_id = event.node_id if event.node_id >= 0 else self._free_node()
        before = self.by_node.get(node_id)
        if before is not None:
            self.remove(before.incarnation)
        broker = LiveBroker(
            node_id,
            incarnation,
            event.host,
            event.port,
            event.rack,
            event.process_id,
            endpoints_of(event.endpoints),
        )
        self.by_node[node_id] = broker
        self._live(incarnation, stamp_ms)
        return broker

    def admit(self, incarnation: int, event: ProcessRegistered, stamp_ms: int) -> None:
        """Add a process that is not a broker."""
        self.processes[incarnation] = LiveProcess(incarnation, event.purpose, event.process_id)
        self._live(incarnation, stamp_ms)

    def _live(self, incarnation: int, stamp_ms: int) -> None:
        self.sequences[incarnation] = 0
        self.stamps[incarnation] = stamp_ms

    def remove(self, incarnation: int) -> bool:
        """Remove an incarnation."""
        if self.sequences.pop(incarnation, None) is None:
            return False
        self.stamps.pop(incarnation, None)
        broker = self.of(incarnation)
        if broker is not None:
            del self.by_node[broker.node_id]
        self.processes.pop(incarnation, None)
        return True

    def of(self, incarnation: int) -> LiveBroker | None:
        """Find a live broker by its incarnation."""
        return next((b for b in self.by_node.values() if b.incarnation == incarnation), None)

    def _free_node(self) -> int:
        node_id = 1
        while node_id in self.by_node:
            node_id += 1
        return node_id


def endpoints_of(rows: Iterable[EndpointRow]) -> tuple[BrokerEndpoint, ...]:
    """Return the endpoints of a registration or an image."""
    return tuple(BrokerEndpoint(row.listener, row.protocol, row.host, row.port) for row in rows)
