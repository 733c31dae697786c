"""One request for each case of every API: which topic, group and id it names, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rookery.broker.call import Route, routes
from rookery.service.access.guard import OPEN_APIS
from rookery.wire.codec import table_of
from rookery.wire.items import levels
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    GroupId,
    Message,
    TopicId,
    TopicName,
    TransactionalId,
    Type,
)
from rookery.wire.messages.describe_quorum import DescribeQuorumPartition, DescribeQuorumTopic
from rookery.wire.table import FieldStep, WireTable
from rookery.wire.walk import has_kind, rewrite
from tests.broker.access.variants import VARIANTS
from tests.broker.raw import batch

KNOWN, MISSING = "known", "kn-missing"
BOTH = "both"
"""Two topics in one request, of which a user may be denied one."""
_OF_TWO_TOPICS = {"AddPartitionsToTxn", "DescribeTopicPartitions", "Fetch"}
"""APIs whose variants name two topics."""
_TOPIC_LISTS = ("topics", "topic_data", "topic_names", "v3_and_below_topics")
GROUP, TXN = "group-a", "txn-a"
TOPIC_SETTINGS, BROKER_SETTINGS, LOGGERS, METRIC_SETTINGS, GROUP_SETTINGS = 2, 4, 8, 16, 32
SETTINGS: Mapping[int, str] = {
    TOPIC_SETTINGS: KNOWN, BROKER_SETTINGS: "1", LOGGERS: "1", METRIC_SETTINGS: "metrics-a",
    GROUP_SETTINGS: GROUP,
}  # fmt: skip
"""The name of a resource of each type that has settings."""
UNKNOWN_ID = bytes(range(16))
FILTER_ANY = 1

_PLAIN: Mapping[Type, Any] = {
    Type.BOOL: False, Type.STRING: "x", Type.BYTES: b"", Type.RECORDS: b"", Type.F64: 0.0,
    Type.UUID: ZERO_UUID, Type.ERROR: 0,
}  # fmt: skip


_PROTOCOL: Mapping[str, str] = {"protocol_type": "consumer", "protocol_name": "range"}


class AccessCase(NamedTuple):
    """A request of one API in one version, by a topic's name or id."""

    route: Route
    version: int
    topic: str
    by_id: bool
    type: int = 0
    """The type of the resource, where a request can name several."""
    variant: str = ""
    """What the request asks for otherwise, as in `variants.py`."""

    @property
    def api(self) -> Api[Any, Any]:
        return self.route.api

    def __str__(self) -> str:
        how = "id" if self.by_id else "name"
        variant = f"-{self.variant}" if self.variant else ""
        return f"{self.api.name}-{self.version}-{self.topic}-{how}-{self.type}{variant}"

    def request(self, ids: Mapping[str, bytes]) -> Message:
        """Build the request for a server whose topics have these ids."""
        if self.topic == BOTH:
            request = self._replace(topic=KNOWN).request(ids)
            other = self._replace(topic=MISSING).request(ids)
            for name in _TOPIC_LISTS:
                if getattr(request, name, None):
                    setattr(request, name, getattr(request, name) + getattr(other, name))
            return request
        request = _struct(table_of(self.api.request, self.version), self.api)
        _name(request, self, ids)
        _adapt(request, self)
        if self.variant:
            VARIANTS[self.api.name][self.variant].change(request, self.version)
        return request


def cases() -> Iterator[AccessCase]:
    """Yield the cases of all guarded APIs, in all served versions."""
    for route in routes().values():
        if route.api.key in OPEN_APIS:
            continue
        for version in route.versions:
            yield from _plain_cases(route, version)
            yield from _varied_cases(route, version)


def _varied_cases(route: Route, version: int) -> Iterator[AccessCase]:
    names = _names(table_of(route.api.request, version))
    by_id = "topic_id" in names and not names & {"name", "topic"}
    is_pair = route.api.name in _OF_TWO_TOPICS and not by_id
    for name, variant in VARIANTS.get(route.api.name, {}).items():
        if variant.since <= version <= variant.until:
            topic = BOTH if is_pair else KNOWN
            yield AccessCase(route, version, topic, by_id, _types(route.api)[0], name)


def _plain_cases(route: Route, version: int) -> Iterator[AccessCase]:
    fields = table_of(route.api.request, version)
    for kind in _types(route.api):
        if not has_kind(route.api.request, TopicName) or kind:
            yield AccessCase(route, version, KNOWN, by_id=False, type=kind)
            continue
        names = _names(fields)
        if "name" in names or "topic" in names:
            for topic in (KNOWN, MISSING, BOTH):
                yield AccessCase(route, version, topic, by_id=False)
        if "topic_id" in names and (route.api.name != "Metadata" or version >= 12):
            for topic in (KNOWN, MISSING):
                yield AccessCase(route, version, topic, by_id=True)
        if not names & {"name", "topic", "topic_id"}:
            yield AccessCase(route, version, KNOWN, by_id=False)


def _types(api: Api[Any, Any]) -> tuple[int, ...]:
    if api.name in {"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"}:
        return (TOPIC_SETTINGS, BROKER_SETTINGS, LOGGERS, METRIC_SETTINGS, GROUP_SETTINGS)
    return (0, 1) if api.name == "FindCoordinator" else (0,)


def _names(table: WireTable) -> set[str]:
    names = set()
    for step in table.steps:
        names.add(step.name)
        if step.table is not None and step.type is Type.ARRAY:
            names |= _names(step.table)
    return names


def _struct(table: WireTable, api: Api[Any, Any]) -> Message:
    values: dict[str, Any] = {step.name: _value(step, api) for step in table.steps}
    for step in (*table.tagged.values(), *table.absent):
        values[step.name] = step.factory() if step.factory else step.default
    return table.message(**values)


def _value(step: FieldStep, api: Api[Any, Any]) -> Any:
    lists = {level.name for items in api.items for level in levels(items.asked)}
    if step.type is Type.ARRAY:
        if step.name not in lists:
            return None if step.nullable else []
        if step.table is not None:
            return [_struct(step.table, api)]
        return [_PLAIN.get(step.element or Type.I32, 0)]
    if step.nullable:
        return "x" if step.name in {"name", "transactional_id", *_PROTOCOL} else None
    if step.type is Type.STRUCT and step.table is not None:
        return _struct(step.table, api)
    return _PLAIN.get(step.type, 0)


def _name(request: Message, case: AccessCase, ids: Mapping[str, bytes]) -> None:
    if "resources" in request.__fields__:
        for resource in request.resources:  # type: ignore[attr-defined]
            resource.resource_type = case.type
            resource.resource_name = SETTINGS[case.type]
        return
    if "key_type" in request.__fields__:
        request.key_type = case.type  # type: ignore[attr-defined]
        key = (GROUP, TXN)[case.type]
        request.key = key  # type: ignore[attr-defined]
        request.coordinator_keys = [key] if case.version >= 4 else []  # type: ignore[attr-defined]
        return
    rewrite(request, TopicName, lambda value: case.topic)
    rewrite(request, GroupId, lambda value: GROUP)
    rewrite(request, TransactionalId, lambda value: TXN)
    topic_id = ids.get(case.topic, UNKNOWN_ID) if case.by_id else ZERO_UUID
    rewrite(request, TopicId, lambda value: topic_id)
    if case.by_id:
        _clear_names(request)


def _clear_names(message: Message) -> None:
    """Leave only the id of a topic that is named by its id."""
    for name, entry in message.__fields__.items():
        value = getattr(message, name)
        if isinstance(value, list):
            for element in value:
                if isinstance(element, Message):
                    _clear_names(element)
        elif name in {"name", "topic"} and "topic_id" in message.__fields__:
            setattr(message, name, None if "None" in entry.annotation else "")


def _adapt(request: Any, case: AccessCase) -> None:
    """Make requests harmless, quick, and complete where it matters."""
    fixed: dict[str, Any] = {
        "validate_only": True,
        "timeout_ms": 1000,
        "acks": -1,
        "replica_id": -1,
        "max_wait_ms": 0,
        "max_bytes": 1_000_000,
        "session_epoch": -1,
        "include_authorized_operations": True,
        "include_cluster_authorized_operations": case.version <= 10,
        "include_topic_authorized_operations": True,
        "allow_auto_topic_creation": True,
        "session_timeout_ms": 10_000,
        "transaction_timeout_ms": 1000,
        "resource_type_filter": FILTER_ANY,
        "pattern_type_filter": FILTER_ANY,
        "operation": FILTER_ANY,
        "permission_type": FILTER_ANY,
        "response_partition_limit": 2000,
        "num_partitions": 1,
        "replication_factor": 1,
    }
    for name, value in fixed.items():
        if name in request.__fields__ and request.__fields__[name].is_in(case.version):
            setattr(request, name, value)
    for name, value in _PROTOCOL.items():
        if name in request.__fields__:
            setattr(request, name, value)
    if case.api.name in _ADAPTATIONS:
        _ADAPTATIONS[case.api.name](request, case)


def _heartbeat(request: Any, case: AccessCase) -> None:
    request.subscribed_topic_names = [case.topic]
    # Not the epoch of a member that joins: the group must stay as it is.
    request.member_epoch = 5


def _produce(request: Any, _case: AccessCase) -> None:
    request.transactional_id = None
    for topic in request.topic_data:
        for part in topic.partition_data:
            part.records = batch(b"x")


def _init_producer_id(request: Any, case: AccessCase) -> None:
    is_idempotent = case.version == case.route.versions[0]
    request.transactional_id = None if is_idempotent else TXN


def _alter_users(request: Any, _case: AccessCase) -> None:
    [deletion] = request.deletions
    deletion.name, deletion.mechanism = "nobody", 1
    request.upsertions = []


def _create_topics(request: Any, _case: AccessCase) -> None:
    for topic in request.topics:
        topic.num_partitions, topic.replication_factor = 1, 1
        topic.assignments, topic.configs = [], []


def _create_acls(request: Any, _case: AccessCase) -> None:
    """Create a rule that changes nothing, since no client has this address."""
    [rule] = request.creations
    rule.resource_type, rule.resource_name, rule.principal = 2, "x", "User:nobody"
    rule.resource_pattern_type, rule.host = 3, "10.9.9.9"
    rule.operation, rule.permission_type = 3, 3


def _delete_acls(request: Any, _case: AccessCase) -> None:
    [choice] = request.filters
    choice.resource_type_filter = choice.pattern_type_filter = FILTER_ANY
    choice.operation = choice.permission_type = FILTER_ANY
    choice.principal_filter = "User:nobody"


def _create_delegation_token(request: Any, case: AccessCase) -> None:
    """Ask for a token of another user, where a request can."""
    if case.version >= 3:
        request.owner_principal_type, request.owner_principal_name = "User", "bob"


def _describe_quorum(request: Any, _case: AccessCase) -> None:
    asked = DescribeQuorumPartition(partition_index=0)
    request.topics = [DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[asked])]


_ADAPTATIONS: Mapping[str, Callable[[Any, AccessCase], None]] = {
    "Produce": _produce,
    "ConsumerGroupHeartbeat": _heartbeat,
    "InitProducerId": _init_producer_id,
    "CreateTopics": _create_topics,
    "AlterUserScramCredentials": _alter_users,
    "CreateAcls": _create_acls,
    "DeleteAcls": _delete_acls,
    "DescribeQuorum": _describe_quorum,
    "CreateDelegationToken": _create_delegation_token,
}
