"""The resource and operation of each event that an administrator causes, for the audit file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from rookery.cluster.events import securityevents, tokenevents
from rookery.cluster.events.brokerevents import ConfigsChanged, FeatureLevelRaised
from rookery.cluster.events.topicevents import (
    LogStartMoved,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from rookery.cluster.resources import GROUP_RESOURCE, TOPIC_RESOURCE, resource_name
from rookery.cluster.state.rules.securityrules import binding_of
from rookery.cluster.state.state import Outcome, State
from rookery.errors import ErrorCode
from rookery.model.acl import StoredAcl
from rookery.security.access import AclResource, Operation
from rookery.security.acl import CLUSTER_NAME, AclBinding
from rookery.security.aclrules import ProtectedResource
from rookery.security.audit import QuotaEdit
from rookery.wire.message import Message

_CLUSTER: Final = ProtectedResource(AclResource.CLUSTER, CLUSTER_NAME)


class AuditedChange(NamedTuple):
    """What an event changes."""

    resource: ProtectedResource
    operation: Operation
    rule: AclBinding | None = None
    quota: QuotaEdit | None = None


def changes_of(state: State, event: Message) -> list[AuditedChange]:
    """Return what an event changes; nothing for events that no administrator causes.

    Args:
        state: before the event: a deleted topic is still in it.
        event: the event that is proposed.
    """
    describe = _CHANGES.get(type(event))
    return describe(state, event) if describe is not None else []


def deletion_of_group(group_id: str) -> AuditedChange:
    """Return what is recorded when an administrator deletes a group, or offsets of it."""
    return AuditedChange(ProtectedResource(AclResource.GROUP, group_id), Operation.DELETE)


def end_of_transaction(topic: str) -> AuditedChange:
    """Return what is recorded when an administrator ends a hanging transaction in a topic."""
    return AuditedChange(ProtectedResource(AclResource.TOPIC, topic), Operation.ALTER)


def removed_rules(event: Message, outcome: Outcome) -> list[AuditedChange]:
    """Return the rules that an event has removed: which ones, `apply` has decided."""
    if not isinstance(event, securityevents.AclsDeleted) or outcome.error is not ErrorCode.NONE:
        return []
    return [_rule_change(rule) for rules in outcome.value for rule in rules]


def _topic(operation: Operation) -> Callable[[State, Message], list[AuditedChange]]:
    def describe(state: State, event: Message) -> list[AuditedChange]:
        topic_id: bytes = event.topic_id  # type: ignore[attr-defined] # these events have one
        topic = state.topics.by_id.get(topic_id)
        name = topic.name if topic is not None else topic_id.hex()
        return [AuditedChange(ProtectedResource(AclResource.TOPIC, name), operation)]

    return describe


def _describe_creation(_state: State, event: TopicCreated) -> list[AuditedChange]:
    resource = ProtectedResource(AclResource.TOPIC, event.name)
    return [AuditedChange(resource, Operation.CREATE)]


def _describe_configs(_state: State, event: ConfigsChanged) -> list[AuditedChange]:
    resource = _CLUSTER
    if event.resource_type == TOPIC_RESOURCE:
        resource = ProtectedResource(AclResource.TOPIC, event.resource_name)
    elif event.resource_name != resource_name(GROUP_RESOURCE, event.resource_name):
        group = resource_name(GROUP_RESOURCE, event.resource_name)
        resource = ProtectedResource(AclResource.GROUP, group)
    return [AuditedChange(resource, Operation.ALTER_CONFIGS)]


def _rules_created(_state: State, event: securityevents.AclsCreated) -> list[AuditedChange]:
    return [_rule_change(binding_of(row)) for row in event.rules]


def _rule_change(rule: StoredAcl) -> AuditedChange:
    return AuditedChange(_CLUSTER, Operation.ALTER, AclBinding.from_stored(rule))


def _credentials_changed(
    _state: State, event: securityevents.ScramCredentialsChanged
) -> list[AuditedChange]:
    resource = ProtectedResource(AclResource.USER, f"User:{event.user}")
    return [AuditedChange(resource, Operation.ALTER)]


def _quotas_changed(_state: State, event: securityevents.QuotasChanged) -> list[AuditedChange]:
    edit = QuotaEdit(
        {part.entity_type: part.name for part in event.entity},
        {change.key: None if change.is_removed else change.value for change in event.changes},
    )
    return [AuditedChange(_CLUSTER, Operation.ALTER_CONFIGS, quota=edit)]


def _token_created(_state: State, event: tokenevents.DelegationTokenCreated) -> list[AuditedChange]:
    resource = ProtectedResource(AclResource.USER, event.owner)
    return [AuditedChange(resource, Operation.CREATE_TOKENS)]


def _token(operation: Operation) -> Callable[[State, Message], list[AuditedChange]]:
    def describe(_state: State, event: Message) -> list[AuditedChange]:
        token_id: str = event.token_id  # type: ignore[attr-defined] # these events have one
        return [AuditedChange(ProtectedResource(AclResource.DELEGATION_TOKEN, token_id), operation)]

    return describe


def _cluster(operation: Operation) -> Callable[[State, Message], list[AuditedChange]]:
    return lambda _state, _event: [AuditedChange(_CLUSTER, operation)]


_CHANGES: Final[dict[type[Message], Callable[..., list[AuditedChange]]]] = {
    TopicCreated: _describe_creation,
    TopicDeleted: _topic(Operation.DELETE),
    PartitionsAdded: _topic(Operation.ALTER),
    LogStartMoved: _topic(Operation.DELETE),
    ConfigsChanged: _describe_configs,
    FeatureLevelRaised: _cluster(Operation.ALTER),
    securityevents.AclsCreated: _rules_created,
    securityevents.AclsDeleted: _cluster(Operation.ALTER),
    securityevents.ScramCredentialsChanged: _credentials_changed,
    securityevents.QuotasChanged: _quotas_changed,
    tokenevents.DelegationTokenCreated: _token_created,
    tokenevents.DelegationTokenRenewed: _token(Operation.ALTER),
    tokenevents.DelegationTokenRevoked: _token(Operation.DELETE),
}
