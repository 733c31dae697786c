"""Config changes requested by AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from rookery.broker.call import Call
from rookery.broker.config.configs import (
    ALL_BROKERS,
    check_brokers,
    check_group,
    check_topic,
    invalid,
)
from rookery.broker.decisions import decide
from rookery.broker.telemetry import clientmetrics
from rookery.cluster.events.brokerevents import ConfigsChanged, SettingChange
from rookery.cluster.resources import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    resource_key,
)
from rookery.cluster.state.rules.topicrules import CONDITIONAL_CONFIGS
from rookery.errors import ApiError, ErrorCode

_OTHERS: Final = {8: "a broker's loggers"}


# The number of attempts when concurrent changes to the same resource win the race. It allows for
# many administrators that change one resource concurrently.
_TRIES: Final = 20


class Resource(Protocol):
    """The fields of a resource that both requests have in common."""

    resource_type: int
    resource_name: str


R = TypeVar("R", bound=Resource)
Wanted = Callable[[R, Mapping[str, str]], Mapping[str, str | None]]
"""Computes a resource's new settings from the request and its current settings."""


class Result(NamedTuple):
    """The outcome of a change to one resource."""

    error: ErrorCode
    text: str | None = None


_CHANGED_MEANWHILE: Final = Result(
    ErrorCode.INVALID_UPDATE_VERSION, "other requests kept changing the settings; try again"
)


async def alter(
    call: Call, resources: Sequence[R], wanted: Wanted[R], *, validate_only: bool
) -> list[Result]:
    """Change every resource that can be changed; each change is atomic.

    New settings are computed from the current ones. If another broker changes them concurrently,
    they are computed again.
    """
    counts = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    results = [_CHANGED_MEANWHILE] * len(resources)
    for _ in range(_TRIES):
        await call.services.replica.barrier()
        events: dict[int, ConfigsChanged] = {}
        for index, resource in enumerate(resources):
            if results[index].error is not _CHANGED_MEANWHILE.error:
                continue
            times = counts[resource.resource_type, resource.resource_name]
            plan = _plan(call, resource, wanted, times)
            if isinstance(plan, Result):
                results[index] = plan
            elif validate_only or not plan.changes:
                results[index] = Result(ErrorCode.NONE)
            else:
                events[index] = plan
        outcomes = await decide(call, list(events.values()))
        for index, outcome in zip(events, outcomes, strict=True):
            results[index] = _result(outcome.error)
        if all(result.error is not _CHANGED_MEANWHILE.error for result in results):
            break
    return results


def _result(code: ErrorCode) -> Result:
    return Result(code, None if code is ErrorCode.NONE else code.sentence)


def _plan(call: Call, resource: R, wanted: Wanted[R], times: int) -> ConfigsChanged | Result:
    try:
        if times > 1:
            return Result(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
        now = settings_of(call, resource.resource_type, resource.resource_name)
        after = _check(call, resource, wanted(resource, now))
    except ApiError as error:
        return Result(error.code, error.text)
    changes: dict[str, str | None] = {name: None for name in now if name not in after}
    changes.update({name: value for name, value in after.items() if now.get(name) != value})
    return ConfigsChanged(
        resource_type=resource.resource_type,
        resource_name=resource_key(resource.resource_type, resource.resource_name),
        changes=_changes(changes),
        is_conditional=call.state.feature_level >= CONDITIONAL_CONFIGS,
        observed=_changes(now) if call.state.feature_level >= CONDITIONAL_CONFIGS else [],
    )


def _changes(values: Mapping[str, str | None]) -> list[SettingChange]:
    return [SettingChange(name=name, value=value) for name, value in values.items()]


def _check(call: Call, resource: Resource, values: Mapping[str, str | None]) -> dict[str, str]:
    if resource.resource_type == TOPIC_RESOURCE:
        return check_topic(values)
    if resource.resource_type == GROUP_RESOURCE:
        return check_group(values, call.services.settings)
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        clientmetrics.check_room(call.state, resource.resource_name)
        return clientmetrics.check(values)
    if values and resource.resource_name != ALL_BROKERS:
        raise _no_own_settings()
    return check_brokers(values)


def settings_of(call: Call, resource_type: int, name: str) -> dict[str, str]:
    """Return the settings that are set on the resource itself, without inherited ones.

    Raises:
        ApiError: the resource does not exist, or its settings cannot be changed.
    """
    if resource_type == TOPIC_RESOURCE:
        topic = call.state.topics.by_name.get(name)
        if topic is None:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return topic.configs
    if resource_type == GROUP_RESOURCE:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "group settings need the id of a group")
        return call.state.broker_configs.get(resource_key(resource_type, name), {})
    if resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        return call.state.broker_configs.get(resource_key(resource_type, name), {})
    if resource_type != BROKER_RESOURCE:
        raise make_unserved_error(resource_type)
    if name != ALL_BROKERS:
        if name not in map(str, call.state.brokers.nodes):
            raise _no_own_settings()
        # Tools delete settings of a single broker although it has none.
        return {}
    return call.state.broker_configs.get(ALL_BROKERS, {})


def _no_own_settings() -> ApiError:
    return invalid(
        "any broker serves any partition, so settings apply to all brokers: omit the broker's id "
        "(kafka-configs: --entity-default)"
    )


def make_unserved_error(resource_type: int) -> ApiError:
    """Return the error for a resource type that has no settings in this cluster."""
    what = _OTHERS.get(resource_type, f"resources of type {resource_type}")
    return ApiError(ErrorCode.INVALID_REQUEST, f"{what} have no settings in this cluster")
