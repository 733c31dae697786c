"""The proxy's instances, and the brokers and partitions that each represents for clients.

Every process computes the same from the same list, without asking the others. The partitions of a
topic take turns through all instances, in an order that follows from the topic's name: the load is
even within a topic, and the first partitions of many topics are spread, too. When an instance is
away, each of its partitions moves to the next in that order, and no other partition moves.

All of this only guides clients. Any instance answers every request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from hashlib import blake2b
from typing import Final

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address

_MAX_RANKS: Final = 100_000


class InstanceList:
    """The instances by node id, and which of them are away."""

    def __init__(self, own_id: int, addresses: Mapping[int, Address]) -> None:
        """Begin with all instances present.

        Args:
            own_id: the node id of this instance.
            addresses: the advertised address of each instance.
        """
        self.own_id = own_id
        self.addresses = dict(sorted(addresses.items()))
        self._away: frozenset[int] = frozenset()
        self._ranks: dict[str, tuple[int, ...]] = {}

    @property
    def present(self) -> dict[int, Address]:
        """The address of each instance that is not away, by node id."""
        return {node: where for node, where in self.addresses.items() if node not in self._away}

    @property
    def controller_id(self) -> int:
        """The instance that clients use as the controller: the first that is present."""
        return next(iter(self.present))

    def set_own_address(self, address: Address) -> None:
        """Set the address of this instance, when its port is known."""
        self.addresses = dict(sorted({**self.addresses, self.own_id: address}.items()))
        self._ranks.clear()

    def set_away(self, away: Collection[int]) -> None:
        """Record which instances cannot be reached; this one always counts as present."""
        self._away = frozenset(away) - {self.own_id}

    def replicas_of(self, topic: str, partition: int, count: int) -> list[int]:
        """Return the instances that stand for a partition's replicas, the leader first.

        Args:
            topic: the name or id of the topic.
            partition: its index.
            count: how many replicas the upstream has; there are no more than instances.
        """
        present = [node for node in self._order(topic, partition) if node not in self._away]
        return present[: max(count, 1)]

    def leader_of(self, topic: str, partition: int) -> int:
        """Return the instance that stands for a partition's leader."""
        return next(node for node in self._order(topic, partition) if node not in self._away)

    def coordinator_of(self, key_type: int, key: str) -> int:
        """Return the instance that stands for the coordinator of a group or transactional id."""
        return self.leader_of(f"coordinator {key_type} {key}", 0)

    def stands_for(self, broker_id: int) -> bool:
        """Return whether this instance reports the contents of a broker of the upstream.

        Each broker has one such instance, so that clients that ask all instances get each result
        once.
        """
        return self.leader_of(f"broker {broker_id}", 0) == self.own_id

    def _order(self, key: str, turn: int) -> Iterator[int]:
        ranks = self._rank(key)
        size = len(ranks)
        return (ranks[(turn + step) % size] for step in range(size))

    def _rank(self, key: str) -> tuple[int, ...]:
        """Return the instances in the order for a key (rendezvous hashing)."""
        if len(self.addresses) == 1:
            return (self.own_id,)
        known = self._ranks.get(key)
        if known is None:
            if len(self._ranks) >= _MAX_RANKS:
                self._ranks.clear()
            known = tuple(sorted(self.addresses, key=lambda node: _weight(node, key)))
            self._ranks[key] = known
        return known


def parse_instances(text: str, setting: str = "instances") -> dict[int, Address]:
    """Parse `1=proxy-1:9092, 2=proxy-2:9092`; an empty text has no instances.

    Raises:
        ConfigError: it has another form, or names a node id or an address twice.
    """
    addresses: dict[int, Address] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        node, separator, where = part.partition("=")
        if not separator or not (node.strip().isascii() and node.strip().isdigit()):
            raise ConfigError(
                f"{part!r} is not an instance such as 1=proxy-1.example.com:9092", name=setting
            )
        node_id = int(node)
        if node_id > 2**31 - 1:
            raise ConfigError(f"node id {node_id} is greater than 2147483647", name=setting)
        address = parse_address(where.strip(), setting)
        if node_id in addresses:
            raise ConfigError(f"node id {node_id} is given twice", name=setting)
        if address in addresses.values():
            raise ConfigError(
                f"{address.text} is given twice; processes that share an address are one instance",
                name=setting,
            )
        addresses[node_id] = address
    return addresses


def _weight(node: int, key: str) -> bytes:
    # Python's own hash differs from process to process.
    return blake2b(f"{node} {key}".encode(errors="surrogatepass"), digest_size=8).digest()
