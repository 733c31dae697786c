"""The cluster's access rules (ACLs) and topics, for the guard and for the ACL APIs.

A rule is in force on all live brokers when the answer to its creation is sent
(`cluster/agreement.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeVar

from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.securityevents import AclFilterRow, AclRow
from rookery.cluster.replica import Replica
from rookery.errors import ApiError
from rookery.security.acl import AclBinding, AclFilter
from rookery.security.principal import parse_super_users
from rookery.service.access.guard import Guard
from rookery.service.access.policy import AccessPolicy, AuthorizerSettings
from rookery.service.access.visibility import TopicVisibility

T = TypeVar("T")
R = TypeVar("R")

NO_AUTHORIZER: Final = "No Authorizer is configured."
"""The error message for requests about ACLs."""


class ClusterRules:
    """The rules in the state that the replica has applied."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def stamp(self) -> Hashable:
        """Return a value that changes with the rules; also if the state was replaced."""
        security = self._replica.state.security
        return security, security.acls_version

    def rules(self) -> Iterable[AclBinding]:
        """Return all rules."""
        return map(AclBinding.from_stored, self._replica.state.security.acls)


class ClusterTopics:
    """The topics in the state that the replica has applied."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""
        topic = self._replica.state.topics.by_id.get(topic_id)
        return None if topic is None else topic.name

    def id_of(self, name: str) -> bytes | None:
        """Return the id of the topic with a name."""
        topic = self._replica.state.topics.by_name.get(name)
        return None if topic is None else topic.id

    def names(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._replica.state.topics.by_name)

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""
        topic = self._replica.state.topics.by_name.get(name)
        return 0 if topic is None else len(topic.partitions)


def open_guard(settings: BrokerSettings, replica: Replica) -> Guard | None:
    """Create the guard; None if there is no authorizer.

    Raises:
        ConfigError: the list of super users cannot be used.
    """
    super_users = parse_super_users(settings.super_users)
    if settings.authorizer == "none":
        return None
    authorizer = AuthorizerSettings(
        super_users=super_users,
        allow_everyone_if_no_acl=settings.allow_everyone_if_no_acl,
        is_enforced=settings.authorizer == "acls",
    )
    return Guard(
        AccessPolicy(ClusterRules(replica), authorizer),
        ClusterTopics(replica),
        creates_topics=settings.auto_create_topics,
    )


def read_each(items: Iterable[T], read: Callable[[T], R]) -> list[R | ApiError]:
    """Convert the items of a request, each on its own: an invalid one becomes its error."""

    def read_one(item: T) -> R | ApiError:
        try:
            return read(item)
        except ApiError as error:
            return error

    return [read_one(item) for item in items]


def visibility_of(guard: Guard | None) -> TopicVisibility | None:
    """Return what selects the topics that clients may describe; None if they may describe all."""
    if guard is None or not guard.policy.settings.is_enforced:
        return None
    return TopicVisibility(guard.policy)


def write_rule(rule: AclBinding) -> AclRow:
    """Convert a rule for the cluster log."""
    return AclRow(**rule.to_stored()._asdict())


def write_filter(choice: AclFilter) -> AclFilterRow:
    """Convert a filter for the cluster log."""
    return AclFilterRow(**choice.to_stored()._asdict())
