"""ControllerRegistration (key 70): a starting controller introduces itself to the active one.

The active controller learns its listeners and features, as it does of brokers (KIP-919).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, Host, Message, ShortPort, Uuid, i16, i32


class ControllerRegistrationRequest(Message):
    """The controller's identity, its listeners and its features."""

    controller_id: BrokerId  # controllers and brokers share one space of node ids
    incarnation_id: Uuid  # drawn again at every start of the process
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]


class Listener(Message):
    """An address that the controller listens on."""

    name: str
    host: Host
    port: ShortPort
    security_protocol: i16  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class Feature(Message):
    """A feature with the levels that the controller supports."""

    name: str
    min_supported_version: i16
    max_supported_version: i16


class ControllerRegistrationResponse(Message):
    """Whether the controller is known now."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: ControllerRegistrationRequest, code: ErrorCode
) -> ControllerRegistrationResponse:
    """Give the code and its sentence."""
    return ControllerRegistrationResponse(error_code=code, error_message=code.sentence)


CONTROLLER_REGISTRATION = Api(
    key=70,
    request=ControllerRegistrationRequest,
    response=ControllerRegistrationResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
