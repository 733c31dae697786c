"""The servers that are attacked, by name, and the ways to them that attacks take.

A new kind of server is a class of `Victim`, a row in `SERVERS` and its rows in `WAYS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.abuse.attack import Door
from tests.abuse.brokers import open_broker, open_fortress
from tests.abuse.proxies import (
    NodesProxy,
    OpenProxy,
    edge_proxy,
    nodes_proxy,
    open_proxy,
    relay_proxy,
)
from tests.abuse.victims import Role, Victim

Start = Callable[[Path, tuple[str, ...]], AbstractContextManager[Victim]]
"""Starts a server in a folder, with flags of its own."""
SERVERS: Final[Mapping[str, Start]] = {
    "open": open_broker,
    "closed": open_fortress,
    "open proxy": open_proxy,
    "nodes proxy": nodes_proxy,
    "edge proxy": edge_proxy,
    "relay proxy": relay_proxy,
}


class Way(NamedTuple):
    """A server, and the role in which its attacker comes."""

    server: str
    role: Role


WAYS: Final[Mapping[str, Way]] = {
    "plaintext": Way("open", Role.ANYONE),
    "member": Way("closed", Role.MEMBER),
    "guest": Way("closed", Role.GUEST),
    "stranger": Way("closed", Role.STRANGER),
    "proxy": Way("open proxy", Role.ANYONE),
    "proxy-nodes": Way("nodes proxy", Role.ANYONE),
    "proxy-user": Way("edge proxy", Role.MEMBER),
    "proxy-stranger": Way("edge proxy", Role.STRANGER),
    "proxy-guest": Way("relay proxy", Role.GUEST),
}
ADMITTED: Final = pytest.mark.parametrize(
    "target",
    [name for name, way in WAYS.items() if way.role in {Role.ANYONE, Role.MEMBER}],
    indirect=True,
)
"""Attacks by clients that may use topics and groups: `pytestmark = ADMITTED`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and the way to it that an attack takes."""

    victim: Victim
    role: Role

    @property
    def door(self) -> Door:
        """The way in."""
        return self.victim.doors[self.role]

    @property
    def is_admitted(self) -> bool:
        """Whether the attacker may use topics and groups."""
        return self.role in {Role.ANYONE, Role.MEMBER}

    @property
    def is_proxied(self) -> bool:
        """Whether a proxy is attacked, not a broker."""
        return isinstance(self.victim, OpenProxy)

    @property
    def has_broker_nodes(self) -> bool:
        """Whether the proxy decodes all requests and sends their parts to brokers."""
        return isinstance(self.victim, NodesProxy)

    @property
    def is_stranger(self) -> bool:
        """Whether the attacker cannot log in."""
        return self.role is Role.STRANGER

    @property
    def max_frame_bytes(self) -> int:
        """The largest request that is read."""
        return 524_288 if self.is_stranger else 104_857_600
