"""Maps the brokers of the upstream to ports of the proxy.

The node id of a broker, modulo the number of ports, chooses its port. If that port belongs to
another broker, the next free one is taken. Processes that share their ports must agree without a
common memory; there, such a broker gets no port.
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

    @property
    def text(self) -> str:
        """The range as settings have it, or its only port."""
        return f"{self.first}-{self.last}" if len(self) > 1 else str(self.first)

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

    def __init__(self, ports: PortRange, *, is_shared: bool = False) -> None:
        """Assign none yet.

        Args:
            ports: to assign.
            is_shared: whether other processes assign the same ports to the same brokers.
        """
        self._ports = ports
        self._is_shared = is_shared
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
            ConfigError: all ports are assigned, or that of the broker is another's.
        """
        known = self._port_of.get(node_id)
        if known is not None:
            return known
        size = len(self._ports)
        for step in range(1 if self._is_shared else size):
            port = self._ports.first + (node_id + step) % size
            if port not in self._node_of:
                self._port_of[node_id] = port
                self._node_of[port] = node_id
                return port
        if self._is_shared:
            taken = self._ports.first + node_id % size
            raise ConfigError(
                f"broker {node_id} of the upstream gets no port, because {taken} belongs to broker "
                f"{self._node_of[taken]}; set another number of ports (now {size}), or one worker",
                name="node_ports",
            )
        raise ConfigError(
            f"broker {node_id} of the upstream gets no port, because all {size} from "
            f"{self._ports.first} to {self._ports.last} are assigned; set a larger range",
            name="node_ports",
        )
