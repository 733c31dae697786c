"""One TLS port for all brokers: the name in a client's handshake (SNI) chooses the broker."""

from __future__ import annotations

import re
import ssl
from typing import Final
from weakref import WeakKeyDictionary

from rookery.errors import ConfigError

NODE_ID: Final = "$(node_id)"
"""Stands for the node id of a broker in the pattern of names."""


class NodeNames:
    """The names of brokers by a pattern; names that do not match it are for the bootstrap."""

    def __init__(self, pattern: str) -> None:
        """Prepare the names.

        Raises:
            ConfigError: the pattern does not have one place for the node id.
        """
        before, node_id, after = pattern.partition(NODE_ID)
        if not node_id or NODE_ID in after or "$" in before + after:
            raise ConfigError(
                f"{pattern!r} must contain {NODE_ID} once, as in broker-{NODE_ID}.example.com",
                name="node_names",
            )
        self._pattern = pattern
        self._matches = re.compile(
            f"{re.escape(before)}[0-9]+{re.escape(after)}", re.IGNORECASE
        ).fullmatch
        self._node_of: dict[str, int] = {}

    def add(self, node_id: int) -> str:
        """Make a broker known; return its name."""
        name = self._pattern.replace(NODE_ID, str(node_id))
        self._node_of[name.lower()] = node_id
        return name

    def find(self, name: str) -> int | None:
        """Return the broker of a name in lower case; None for the bootstrap."""
        return self._node_of.get(name)

    def is_unknown(self, name: str) -> bool:
        """Return whether a name in lower case is that of a broker which does not exist."""
        return name not in self._node_of and self._matches(name) is not None


class ServerNames:
    """The names for which clients have asked in their TLS handshakes."""

    def __init__(self, nodes: NodeNames | None = None) -> None:
        """Note names; with names of brokers, refuse those of unknown brokers."""
        self._nodes = nodes
        self._name_of: WeakKeyDictionary[ssl.SSLObject, str] = WeakKeyDictionary()

    def watch(self, context: ssl.SSLContext) -> ssl.SSLContext:
        """Note the names of the handshakes of a context; return the context."""
        context.sni_callback = self._note
        return context

    def of(self, tls: object) -> str:
        """Return the name in lower case that a connection has asked for; empty if none."""
        return self._name_of.get(tls, "") if isinstance(tls, ssl.SSLObject) else ""

    def _note(
        self, tls: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> int | None:
        if name is None or not isinstance(tls, ssl.SSLObject):
            return None
        lowered = name.lower().rstrip(".")
        if self._nodes is not None and self._nodes.is_unknown(lowered):
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        self._name_of[tls] = lowered
        return None
