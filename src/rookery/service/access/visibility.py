"""The topics that a client may describe, for lists that are made outside of its requests.

The regular expressions of a group's members match only topics that the member may describe. The
coordinator evaluates them again when topics or rules change, also for members that have not sent a
request since then.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from rookery.net.session import ClientSession
from rookery.security.access import AclResource, Operation
from rookery.service.access.policy import AccessPolicy


class TopicVisibility:
    """Selects topics by the rules in force."""

    def __init__(self, policy: AccessPolicy) -> None:
        self._policy = policy

    @property
    def stamp(self) -> Hashable:
        """A value that changes with the rules."""
        return self._policy.refresh()

    def select(self, names: Iterable[str], principal: str, host: str) -> frozenset[str]:
        """Return the names of those topics that a client may describe."""
        client = self._policy.client(ClientSession(principal=principal, host=host))
        return frozenset(
            name for name in names if client.has(Operation.DESCRIBE, AclResource.TOPIC, name)
        )
