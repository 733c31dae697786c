"""Proposes an administrator's changes to the cluster: events in, outcomes out.

The broker that received the request logs changes to topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from rookery.broker.call import Call, routes
from rookery.cluster.entry import divide, fits
from rookery.cluster.events.brokerevents import ConfigsChanged
from rookery.cluster.events.topicevents import PartitionsAdded, TopicCreated, TopicDeleted
from rookery.cluster.resources import TOPIC_RESOURCE
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.cluster.state.state import Outcome, State
from rookery.errors import ApiError, ErrorCode
from rookery.service.audit.changes import AuditedChange, changes_of, removed_rules
from rookery.wire.message import Message

log = logging.getLogger(__name__)

_DEFAULT_TIMEOUT_MS: Final = 60_000

TIMED_OUT: Final = Outcome(ErrorCode.REQUEST_TIMED_OUT)
TOO_LARGE: Final = Outcome(ErrorCode.POLICY_VIOLATION)


async def decide(call: Call, events: Sequence[Message], timeout_ms: int = 0) -> list[Outcome]:
    """Return the outcome of each event; REQUEST_TIMED_OUT for those not known in time.

    An event that is larger than an entry of the cluster log gets POLICY_VIOLATION.

    Raises:
        Error: the cluster log is unreachable, or this broker is fenced.
    """
    # Computed first, since a deleted topic has no name afterwards.
    words = [_describe(call.state, event) for event in events]
    is_audited = call.services.audit is not None
    changes = [changes_of(call.state, event) if is_audited else [] for event in events]
    fitting = [event for event in events if fits(event)]
    known = iter(await _propose(call, fitting, timeout_ms))
    outcomes = [next(known) if fits(event) else TOO_LARGE for event in events]
    for text, outcome in zip(words, outcomes, strict=True):
        if text and outcome.error is ErrorCode.NONE:
            log.info("%s, by client %r", text, call.header.client_id)
    for event, change, outcome in zip(events, changes, outcomes, strict=True):
        record_changes(call, removed_rules(event, outcome) or change, outcome.error)
    return outcomes


async def _propose(call: Call, events: Sequence[Message], timeout_ms: int) -> list[Outcome]:
    """Propose events in parts; return their outcomes, or that there was no time for them."""
    outcomes: list[Outcome] = []
    clock = call.services.clock
    ends_ms = clock.monotonic_ms() + (timeout_ms if timeout_ms > 0 else _DEFAULT_TIMEOUT_MS)
    # One part at a time: an entry contains everything that waits, and other proposals wait too.
    for part in divide(events):
        future = call.services.replica.propose(part)
        # Not cancelled on timeout: the proposal may still be applied.
        await asyncio.wait([future], timeout=max(ends_ms - clock.monotonic_ms(), 0) / 1000)
        if not future.done():
            outcomes += [TIMED_OUT] * (len(events) - len(outcomes))
            break
        outcomes += future.result()
    return outcomes


async def decide_for_all_brokers(call: Call, events: Sequence[Message]) -> list[Outcome]:
    """Return the outcome of each event once no broker decides without it.

    REQUEST_TIMED_OUT if a broker neither applies the events nor expires: they are in force here,
    and will be there.

    Raises:
        Error: the cluster log is unreachable, or this broker is fenced.
    """
    outcomes = await decide(call, events)
    agreement, settings = call.services.agreement, call.services.settings
    session_ms, lease_ms = settings.session_timeout_ms, settings.member().lease_ms
    # A silent broker is expired after one session, which has to be decided, too.
    if agreement is None or await agreement.wait(session_ms + max(session_ms, lease_ms)):
        return outcomes
    return [TIMED_OUT for _ in outcomes]


def record_changes(call: Call, changes: Sequence[AuditedChange], code: ErrorCode) -> None:
    """Write to the audit file what a request has changed, or why it was refused."""
    audit = call.services.audit
    if audit is None:
        return
    reason = "" if code is ErrorCode.NONE else code.name
    api = routes()[call.header.api_key].api.name
    for change in changes:
        audit.record_change(call.connection.session, api, change, reason=reason)


def _describe(state: State, event: Message) -> str:
    match event:
        case TopicCreated():
            return f"topic {event.name!r} created with {event.partitions} partitions"
        case TopicDeleted():
            return f"topic {_name(state, event.topic_id)!r} deleted"
        case PartitionsAdded():
            name = _name(state, event.topic_id)
            return f"topic {name!r} altered: it has {event.partitions} partitions"
        case ConfigsChanged() if event.resource_type == TOPIC_RESOURCE:
            changes = ", ".join(
                f"{change.name} reset"
                if change.value is None
                else f"{change.name}={change.value!r}"
                for change in event.changes
            )
            return f"topic {event.resource_name!r} altered: {changes}"
    return ""


def _name(state: State, topic_id: bytes) -> str:
    topic = state.topics.by_id.get(topic_id)
    return topic.name if topic is not None else topic_id.hex()


def take_mutations(call: Call, partitions: int, *, strict_since: int) -> None:
    """Charge partitions that are to be created or deleted to the client's quota (KIP-599).

    Args:
        call: the request.
        partitions: the number of partitions.
        strict_since: the first version of the API whose clients know the error.

    Raises:
        ApiError: THROTTLING_QUOTA_EXCEEDED; the change must not be made.
    """
    if call.throttle is not None:
        call.throttle.take_mutations(partitions, is_strict=call.version >= strict_since)


def may_create_unasked(call: Call, partitions: int) -> bool:
    """Charge the partitions of a topic that a client creates by naming it to its quota (KIP-599).

    As in Kafka, the topic is not created if the quota is used up, and the client does not pause: it
    sends such requests for other topics, too.
    """
    try:
        if call.throttle is not None:
            call.throttle.take_mutations(partitions, is_strict=True, pauses=False)
    except ApiError:
        return False
    return True


def require_security(call: Call) -> None:
    """Refuse changes of rules, credentials and quotas before all brokers can read them.

    Raises:
        ApiError: UNSUPPORTED_VERSION; the operator must raise the feature level first.
    """
    if call.state.feature_level < SECURITY:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster has feature level {call.state.feature_level}; when all brokers run this "
            f"release, raise it: kafka-features upgrade --feature rookery.version={SECURITY}",
        )
