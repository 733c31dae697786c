"""CreateTopics: validates the request, proposes the topics to the cluster, reports the results.

Any replication factor is accepted and reported as requested, since the store provides durability.
Of a manual assignment, only the numbers of partitions and replicas are used; leaders are chosen as
usual.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rookery.broker.call import Call, handles
from rookery.broker.config import configs
from rookery.broker.config.configkeys import TOPIC_KEYS
from rookery.broker.decisions import decide, take_mutations
from rookery.broker.topics import MAX_PARTITIONS, check_alike, new_topic
from rookery.cluster.events.topicevents import TopicCreated
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.create_topics import (
    CREATE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

Settings = dict[str, CreatableTopicConfigs]
"""Settings as reported to clients, by name; topics that inherit a setting share its entry."""


_STRICT_SINCE: Final = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED."""


class _Refusal(NamedTuple):
    name: str
    error: ErrorCode
    text: str


@handles(
    CREATE_TOPICS,
    versions=range(2, 8),
    mutates=True,
)
async def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics; a name that occurs twice in the request is refused."""
    await call.services.replica.barrier()
    counts = Counter(topic.name for topic in request.topics)
    plans = [
        _plan(call, topic, counts[topic.name])
        for topic in {topic.name: topic for topic in request.topics}.values()
    ]
    events = _events(plans)
    inherited = _settings(call, TOPIC_KEYS, {})
    if request.validate_only:
        return CreateTopicsResponse(topics=[_show(call, plan, inherited) for plan in plans])
    errors = dict(
        zip(
            (event.name for event in events),
            (outcome.error for outcome in await decide(call, events, request.timeout_ms)),
            strict=True,
        )
    )
    return CreateTopicsResponse(
        topics=[
            _refuse(_Refusal(plan.name, errors[plan.name], _why(plan.name, errors[plan.name])))
            if errors.get(plan.name, ErrorCode.NONE) is not ErrorCode.NONE
            else _show(call, plan, inherited)
            for plan in plans
        ]
    )


def _plan(call: Call, topic: CreatableTopic, count: int) -> TopicCreated | _Refusal:
    try:
        event = _event(call, topic, count)
        check_alike(call.state.topics, topic.name)
        take_mutations(call, event.partitions, strict_since=_STRICT_SINCE)
    except ApiError as error:
        return _Refusal(topic.name, error.code, error.text)
    return event


def _event(call: Call, topic: CreatableTopic, count: int) -> TopicCreated:
    if count > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    if topic.name in call.state.topics.by_name:
        code = ErrorCode.TOPIC_ALREADY_EXISTS
        raise ApiError(code, _why(topic.name, code))
    partitions, factor = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        if partitions != -1 or factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "with an assignment of replicas, partitions and replication factor must be -1",
            )
        partitions, factor = _check_assignments(call, topic.assignments)
    values = {config.name: config.value for config in topic.configs}
    return new_topic(call.services, topic.name, partitions, factor, values)


def _check_assignments(
    call: Call, assignments: list[CreatableReplicaAssignment]
) -> tuple[int, int]:
    """Return the numbers of partitions and replicas that an assignment requests."""
    if sorted(assignment.partition_index for assignment in assignments) != list(
        range(len(assignments))
    ):
        raise _bad_assignment("partitions must be numbered from 0, without a gap, each once")
    for assignment in assignments:
        unknown = [node for node in assignment.broker_ids if node not in call.state.brokers.by_node]
        if not assignment.broker_ids or len(set(assignment.broker_ids)) < len(
            assignment.broker_ids
        ):
            raise _bad_assignment("a partition's brokers must be one or more, each once")
        if unknown:
            raise _bad_assignment(f"there is no broker {unknown[0]}")
        if len(assignment.broker_ids) != len(assignments[0].broker_ids):
            raise _bad_assignment("all partitions must have as many replicas as the first")
    return len(assignments), len(assignments[0].broker_ids)


def _bad_assignment(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)


def _events(plans: list[TopicCreated | _Refusal]) -> list[TopicCreated]:
    events = [plan for plan in plans if isinstance(plan, TopicCreated)]
    if sum(event.partitions for event in events) > MAX_PARTITIONS:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"one request may bring {MAX_PARTITIONS} partitions at most"
        )
    return events


def _why(name: str, code: ErrorCode) -> str:
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return f"Topic '{name}' already exists."
    if code is ErrorCode.INVALID_TOPIC_EXCEPTION:
        return f"Topic '{name}' differs from another one by '.' and '_' alone."
    return code.sentence


def _refuse(refusal: _Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=refusal.name, error_code=refusal.error, error_message=refusal.text or None, configs=[]
    )


def _show(call: Call, plan: TopicCreated | _Refusal, inherited: Settings) -> CreatableTopicResult:
    if isinstance(plan, _Refusal):
        return _refuse(plan)
    own = {change.name: change.value or "" for change in plan.configs}
    return CreatableTopicResult(
        name=plan.name,
        topic_id=plan.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=plan.partitions,
        replication_factor=plan.replication_factor,
        configs=list((inherited | _settings(call, own, own)).values()),
    )


def _settings(call: Call, names: Iterable[str], own: Mapping[str, str]) -> Settings:
    brokers = call.state.broker_configs
    shown: Settings = {}
    for name in names:
        in_force = configs.synonyms(TOPIC_KEYS[name], own, brokers)[0]
        shown[name] = CreatableTopicConfigs(
            name=name,
            value=in_force.value,
            read_only=False,
            config_source=in_force.source,
            is_sensitive=False,
        )
    return shown
