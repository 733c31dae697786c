"""Removes from an answer what its client may not learn.

Handlers answer as for a client that may do everything. Authorized operations (KIP-430) in their
answers are masks of all operations that exist; here only those remain that the rules allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from rookery.errors import ErrorCode
from rookery.security.access import Access, AccessScope, AclResource, Denial, Operation
from rookery.security.acl import CLUSTER_NAME
from rookery.service.access.policy import AccessClient
from rookery.service.access.tokenaccess import omit_tokens
from rookery.service.access.verdict import AnswerChange
from rookery.wire.elements import field_of
from rookery.wire.message import (
    Api,
    FieldKind,
    GroupId,
    Message,
    TopicId,
    TopicName,
    TransactionalId,
    kind_of,
)
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    refuse_group,
)
from rookery.wire.messages.create_topics import CREATE_TOPICS, CreateTopicsResponse
from rookery.wire.messages.describe_groups import DESCRIBE_GROUPS
from rookery.wire.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS
from rookery.wire.messages.metadata import METADATA
from rookery.wire.table import shape_of
from rookery.wire.walk import has_kind

NOT_ASKED: Final = -(2**31)
"""The mask of a client that has not asked for authorized operations."""
_DENIED_TOPICS: Final = (
    "The group has described topic(s) that the client is not authorized to describe."
)
_CLUSTER_MASK: Final = "cluster_authorized_operations"

TopicNamer = Callable[[bytes], str | None]
"""Returns the name of the topic with an id."""

KINDS: Final = {
    AclResource.TOPIC: TopicName,
    AclResource.GROUP: GroupId,
    AclResource.TRANSACTIONAL_ID: TransactionalId,
}
"""The kinds of fields that name the resources of each type."""


class MaskField(NamedTuple):
    """Where an answer has authorized operations for each of a list of resources."""

    items: str
    mask: str
    resource: AclResource
    name: str


_MASKS: Final = {
    METADATA.key: MaskField("topics", "topic_authorized_operations", AclResource.TOPIC, "name"),
    DESCRIBE_TOPIC_PARTITIONS.key: MaskField(
        "topics", "topic_authorized_operations", AclResource.TOPIC, "name"
    ),
    DESCRIBE_GROUPS.key: MaskField(
        "groups", "authorized_operations", AclResource.GROUP, "group_id"
    ),
    CONSUMER_GROUP_DESCRIBE.key: MaskField(
        "groups", "authorized_operations", AclResource.GROUP, "group_id"
    ),
}


def changes_answers(api: Api[Any, Any], rows: Iterable[Access]) -> bool:
    """Return whether answers of an API can reveal more than what the request names."""
    if api.key in _MASKS or _CLUSTER_MASK in api.response.__fields__:
        return True
    return any(row.scope is AccessScope.LISTED or row.denial is Denial.REDACT for row in rows)


def answer_changes(
    api: Api[Any, Any], rows: Iterable[Access], client: AccessClient, name_of: TopicNamer
) -> list[AnswerChange]:
    """Return the changes that answers of an API need for a client."""
    redaction = Redaction(client, name_of)
    changes: list[AnswerChange] = []
    for row in rows:
        if row.resource is AclResource.DELEGATION_TOKEN:
            changes.append(partial(omit_tokens, client, row))
        elif row.scope is AccessScope.LISTED and row.denial is Denial.OMIT:
            if not client.has_on_cluster(row.or_on_cluster):
                changes.append(lambda answer, row=row: redaction.omit(answer, row))  # type: ignore[misc]
        elif row.scope is AccessScope.LISTED and api is CONSUMER_GROUP_DESCRIBE:
            changes.append(redaction.refuse_groups)
        elif row.denial is Denial.REDACT and api is CREATE_TOPICS:
            changes.append(redaction.hide_settings)
    if api.key in _MASKS:
        place = _MASKS[api.key]
        changes.append(lambda answer: redaction.mask_items(answer, place))
    if _CLUSTER_MASK in api.response.__fields__:
        changes.append(redaction.mask_cluster)
    return changes


class Redaction:
    """Changes answers for one client."""

    def __init__(self, client: AccessClient, name_of: TopicNamer) -> None:
        self._client = client
        self._name_of = name_of

    def omit(self, answer: Message, row: Access) -> Message:
        """Omit the resources that the client may not list."""
        kind = kind_of(KINDS[row.resource])

        def is_listed(element: Message, name: str) -> bool:
            value = getattr(element, name)
            if row.resource is AclResource.TOPIC and not value:
                value = self._name_by_id(element)
            return value is None or self._client.has(row.operation, row.resource, value)

        return _filter(answer, kind, is_listed)

    def _name_by_id(self, element: Message) -> str | None:
        field = field_of(type(element), kind_of(TopicId))
        return None if field is None else self._name_of(getattr(element, field))

    def refuse_groups(self, answer: ConsumerGroupDescribeResponse) -> Message:
        """Refuse groups with assigned topics that the client may not describe."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        groups = [
            group
            if all(
                self._client.has(Operation.DESCRIBE, AclResource.TOPIC, name)
                for name in _assigned_topics(group)
            )
            else refuse_group(group.group_id, code, _DENIED_TOPICS)
            for group in answer.groups
        ]
        return answer.replace(groups=groups)

    def hide_settings(self, answer: CreateTopicsResponse) -> Message:
        """Hide partitions and settings of created topics without DESCRIBE_CONFIGS."""
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics = [
            topic
            if topic.error_code is not ErrorCode.NONE
            or self._client.has(Operation.DESCRIBE_CONFIGS, AclResource.TOPIC, topic.name)
            else topic.replace(
                topic_config_error_code=code, num_partitions=-1, replication_factor=-1, configs=[]
            )
            for topic in answer.topics
        ]
        return answer.replace(topics=topics)

    def mask_items(self, answer: Message, place: MaskField) -> Message:
        """Reduce the authorized operations of each resource to those that the rules allow."""
        items = [self._mask(element, place) for element in getattr(answer, place.items)]
        return answer.replace(**{place.items: items})

    def _mask(self, element: Message, place: MaskField) -> Message:
        mask, name = getattr(element, place.mask), getattr(element, place.name)
        if mask == NOT_ASKED or name is None:
            return element
        return element.replace(**{place.mask: self._mask_allowed(mask, place.resource, name)})

    def mask_cluster(self, answer: Message) -> Message:
        """Reduce the authorized operations of the cluster; none are shown without DESCRIBE."""
        mask = getattr(answer, _CLUSTER_MASK)
        if mask == NOT_ASKED:
            return answer
        allowed = 0
        if self._client.has_on_cluster(Operation.DESCRIBE):
            allowed = self._mask_allowed(mask, AclResource.CLUSTER, CLUSTER_NAME)
        return answer.replace(**{_CLUSTER_MASK: allowed})

    def _mask_allowed(self, mask: int, resource: AclResource, name: str) -> int:
        return sum(
            1 << operation
            for operation in Operation
            if mask & (1 << operation) and self._client.has(operation, resource, name)
        )


def _assigned_topics(group: DescribedGroup) -> set[str]:
    """Return the topics of a group's assignments; Kafka ignores those that are only subscribed."""
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


def _filter(owner: Message, kind: FieldKind, keep: Callable[[Message, str], bool]) -> Message:
    """Return a message without the list elements that name something which is not kept."""
    changed: dict[str, list[Any]] = {}
    for name, entry in owner.__fields__.items():
        shape, elements = shape_of(type(owner), entry), getattr(owner, name)
        if shape.message is None or not shape.is_array or not elements:
            continue
        if not has_kind(shape.message, kind):
            continue
        field = field_of(shape.message, kind)
        if field is not None:
            changed[name] = [element for element in elements if keep(element, field)]
        else:
            changed[name] = [_filter(element, kind, keep) for element in elements]
    return owner.replace(**changed) if changed else owner
