"""BrokerRegistration (key 62): a starting broker introduces itself to the KRaft controller.

The controller answers with a broker epoch, which the broker then sends in every heartbeat. It
distinguishes an old incarnation of the same broker.

Versions:
    1 says whether the broker is moving from ZooKeeper (never true in Kafka 4).
    2 adds the ids of the log directories (KIP-858).
    3 adds the epoch that the broker had before, after a clean shutdown (KIP-966).
    4 lets a feature's lowest supported version be 0.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    BrokerId,
    ClusterId,
    Host,
    Message,
    RackId,
    ShortPort,
    Uuid,
    field,
    i16,
    i32,
    i64,
)


class BrokerRegistrationRequest(Message):
    """The broker's identity, its listeners and its features."""

    broker_id: BrokerId
    cluster_id: ClusterId
    incarnation_id: Uuid  # drawn again at every start of the process
    listeners: list[Listener]
    features: list[Feature]
    rack: RackId | None
    is_migrating_zk_broker: bool = field(since=1, default=False)
    log_dirs: list[Uuid] = field(since=2, factory=list)
    previous_broker_epoch: i64 = field(since=3, default=-1)  # -1: no clean shutdown before


class Listener(Message):
    """An address that the broker listens on."""

    name: str
    host: Host
    port: ShortPort
    security_protocol: i16  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class Feature(Message):
    """A feature (such as metadata.version) with the levels that the broker supports."""

    name: str
    min_supported_version: i16
    max_supported_version: i16


class BrokerRegistrationResponse(Message):
    """The epoch of the broker's new life."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    broker_epoch: i64 = -1


def refuse(request: BrokerRegistrationRequest, code: ErrorCode) -> BrokerRegistrationResponse:
    """Give the code and no epoch."""
    return BrokerRegistrationResponse(error_code=code)


BROKER_REGISTRATION = Api(
    key=62,
    request=BrokerRegistrationRequest,
    response=BrokerRegistrationResponse,
    versions=range(5),
    flexible=0,
    refuse=refuse,
)
