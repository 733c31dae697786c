"""FindCoordinator: the broker that coordinates a group or transactional id, chosen by its hash."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.groups import coordinator_of
from rookery.errors import ErrorCode
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP: Final = 0
_TRANSACTION: Final = 1

_BATCHED: Final = 4


@handles(
    FIND_COORDINATOR,
    versions=range(7),
    mutates=False,
)
def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return the coordinator of one key or, from version 4 on, of several keys."""
    keys = request.coordinator_keys if call.version >= _BATCHED else [request.key]
    coordinators = [_find(call, request.key_type, key) for key in keys]
    if call.version >= _BATCHED:
        return FindCoordinatorResponse(coordinators=coordinators)
    [only] = coordinators
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    if key_type not in {_GROUP, _TRANSACTION}:
        return _refuse(
            key, ErrorCode.INVALID_REQUEST, f"keys of type {key_type} have no coordinator here"
        )
    if key_type == _TRANSACTION and not key:
        return _refuse(key, ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    brokers = call.state.brokers
    broker = call.reachable(brokers.by_node.get(coordinator_of(key, brokers.nodes)))
    if broker is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refuse(key, code, code.sentence)
    return _coordinator(key, broker)


def _coordinator(key: str, broker: LiveBroker) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        error_code=ErrorCode.NONE,
    )


def _refuse(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
