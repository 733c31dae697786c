"""Requests that create topics with virtual partitions, or change their settings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from rookery.errors import ErrorCode
from rookery.proxy.virtual.rules import TopicRule, VirtualRules
from rookery.proxy.virtual.topicbook import REQUIRED_SETTINGS, TOPIC_RESOURCE
from rookery.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_ANY_NUMBER: Final = -1
# Brokers refuse this one where tiered storage is off.
_LEFT_TO_BROKER: Final = frozenset({"remote.storage.enable"})


class TopicCreation:
    """One request to create topics: the part to send, and the refused topics."""

    def __init__(self, rules: VirtualRules, request: CreateTopicsRequest) -> None:
        self._virtual: dict[str, int] = {}
        self._refused: list[CreatableTopicResult] = []
        topics = []
        for topic in request.topics:
            rule = rules.find(topic.name)
            changed = topic if rule is None else self._change(topic, rule)
            if changed is not None:
                topics.append(changed)
        self.request = request.replace(topics=topics)
        """The request for the upstream."""

    def finish(self, response: CreateTopicsResponse) -> CreateTopicsResponse:
        """Return the answer to the client, given that of the upstream."""
        for row in response.topics:
            if row.name in self._virtual and row.num_partitions > 0:
                row.num_partitions = self._virtual[row.name]
        response.topics = [*response.topics, *self._refused]
        return response

    def _change(self, topic: CreatableTopic, rule: TopicRule) -> CreatableTopic | None:
        """Return a topic with physical partitions; None if it is refused."""
        remapper, number = rule.remapper, topic.num_partitions
        wanted, physical = remapper.virtual_partitions, remapper.physical_partitions
        if number not in {_ANY_NUMBER, wanted}:
            if rule.is_default and number != physical:
                return topic
            reason = f"{number} is not virtual_partitions, {wanted}"
            self._refuse(topic, ErrorCode.INVALID_PARTITIONS, reason)
            return None
        given = {each.name: each.value for each in topic.configs}
        for name, value in REQUIRED_SETTINGS.items():
            if given.get(name, value) != value:
                reason = f"with virtual partitions, {name} must be {value}"
                self._refuse(topic, ErrorCode.INVALID_CONFIG, reason)
                return None
        added = [
            CreatableTopicConfig(name=name, value=value)
            for name, value in REQUIRED_SETTINGS.items()
            if name not in given and name not in _LEFT_TO_BROKER
        ]
        self._virtual[topic.name] = wanted
        return topic.replace(num_partitions=physical, configs=[*topic.configs, *added])

    def _refuse(self, topic: CreatableTopic, code: ErrorCode, reason: str) -> None:
        self._refused.append(
            CreatableTopicResult(name=topic.name, error_code=code, error_message=reason, configs=[])
        )


def find_bad_change(resource: Any, *, is_whole: bool) -> str:
    """Return why a change of a topic with virtual partitions is refused; empty if it is not.

    Args:
        resource: the resource of AlterConfigs or IncrementalAlterConfigs.
        is_whole: whether settings that are not named are reset to their defaults.
    """
    if resource.resource_type != TOPIC_RESOURCE:
        return ""
    if is_whole:
        return "AlterConfigs would reset settings of virtual partitions; change single settings"
    bad = [
        f"{each.name} must be {REQUIRED_SETTINGS[each.name]}"
        for each in resource.configs
        if each.name in REQUIRED_SETTINGS and each.value != REQUIRED_SETTINGS[each.name]
    ]
    return f"with virtual partitions, {'; '.join(bad)}" if bad else ""


def explain(rows: Iterable[Any], reason: str) -> None:
    """Put a reason into refused rows that have a place for one."""
    for row in rows:
        if row.error_code and hasattr(row, "error_message"):
            row.error_message = reason
