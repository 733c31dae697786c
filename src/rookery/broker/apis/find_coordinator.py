"""FindCoordinator: the broker that coordinates a group or transactional id, chosen by its hash."""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state.brokers import LiveBroker
from rookery.cluster.state.groups import coordinator_of
from rookery.errors import ErrorCode
from rookery.security.access import AclResource, Operation, cluster, named
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_BATCHED: Final = 4
_WITH_SHARES: Final = range(6, FIND_COORDINATOR.versions.stop)


def _is_for_shares(request: FindCoordinatorRequest) -> bool:
    """The keys are those of share partitions."""
    return request.key_type == _SHARE


@handles(
    FIND_COORDINATOR,
    versions=range(7),
    mutates=False,
    touches=(
        named(AclResource.GROUP, Operation.DESCRIBE),
        named(AclResource.TRANSACTIONAL_ID, Operation.DESCRIBE),
        cluster(Operation.CLUSTER_ACTION, versions=_WITH_SHARES, when=_is_for_shares),
    ),
)
def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Return the coordinator of one key or, from version 4 on, of several keys."""
    keys = request.coordinator_keys if call.version >= _BATCHED else [request.key]
    found = [_find(call, request.key_type, key) for key in keys]
    if call.version >= _BATCHED:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(call: Call, key_type: int, key: str) -> Coordinator:
    if key_type not in {_GROUP, _TRANSACTION}:
        return _refused(
            key, ErrorCode.INVALID_REQUEST, f"keys of type {key_type} have no coordinator here"
        )
    if key_type == _TRANSACTION and not key:
        return _refused(key, ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    brokers = call.state.brokers
    broker = call.reachable(brokers.by_node.get(coordinator_of(key, brokers.nodes)))
    if broker is None:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(key, code, code.sentence)
    return _found(key, broker)


def _found(key: str, broker: LiveBroker) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=broker.node_id,
        host=broker.host,
        port=broker.port,
        error_code=ErrorCode.NONE,
    )


def _refused(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
