"""Which port of the proxy stands for which broker of the upstream.

A broker has the same port in every worker process and after every restart, as far as that is
possible without a common memory: its node id, modulo the number of ports, chooses the port. If that
port belongs to another broker, the next free one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass

from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PortRange:
    """The ports that brokers can have, both ends included."""

    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    @classmethod
    def parse(cls, text: str, setting: str = "node_ports") -> PortRange:
        """Parse `9093-9192`.

        Raises:
            ConfigError: it is not a range of ports.
        """
        first, separator, last = text.partition("-")
        if not (separator and first.strip().isdigit() and last.strip().isdigit()):
            raise ConfigError(f"{text!r} is not a range of ports such as 9093-9192", name=setting)
        ports = cls(int(first), int(last))
        if not 1 <= ports.first <= ports.last <= 65_535:
            raise ConfigError(f"{text!r} must rise from 1 at least to 65535 at most", name=setting)
        return ports


class NodePorts:
    """Assigns the ports of a range to node ids."""

    def __init__(self, ports: PortRange) -> None:
        self._ports = ports
        self._port_of: dict[int, int] = {}
        self._node_of: dict[int, int] = {}

    @property
    def assigned(self) -> dict[int, int]:
        """The port of each node id."""
        return dict(self._port_of)

    def find(self, node_id: int) -> int | None:
        """Return the port of a broker; None if it has none yet."""
        return self._port_of.get(node_id)

    def assign(self, node_id: int) -> int:
        """Return the port of a broker, and assign one if it has none.

        Raises:
            ConfigError: all ports are assigned.
        """
        known = self._port_of.get(node_id)
        if known is not None:
            return known
        size = len(self._ports)
        for step in range(size):
            port = self._ports.first + (node_id + step) % size
            if port not in self._node_of:
                self._port_of[node_id] = port
                self._node_of[port] = node_id
                return port
        raise ConfigError(
            f"broker {node_id} of the upstream gets no port, because all {size} from "
            f"{self._ports.first} to {self._ports.last} are assigned; set a larger range",
            name="node_ports",
        )
