"""Finds the broker whose settings a request names, and rewrites names of brokers.

Clients know instances, not brokers. The settings of an instance are those of a broker of the
upstream that it stands for; they can be read, but not changed. A broker of the upstream can be
named by its own id, unless an instance has this id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.wire.message import Message
from rookery.wire.messages.create_partitions import CreatePartitionsRequest
from rookery.wire.messages.create_topics import CreateTopicsRequest

REFUSED: Final = -2
"""Stands for no broker: the item is refused here."""

TYPES_OF_BROKERS: Final = frozenset({4, 8})
"""The types of resources that a broker has: settings, and levels of its loggers."""


def choose_broker(
    instances: InstanceList, brokers: Sequence[int], resource: Any, *, is_change: bool
) -> int:
    """Return the broker that has a resource; `REFUSED` if it cannot be changed here.

    Args:
        instances: the nodes that clients see.
        brokers: those of the upstream, in order.
        resource: with a type and a name.
        is_change: whether its settings are to be changed.
    """
    name = resource.resource_name
    if resource.resource_type not in TYPES_OF_BROKERS or not (name.isascii() and name.isdigit()):
        return NO_BROKER
    node = int(name)
    if node in instances.addresses:
        if is_change:
            return REFUSED
        return brokers[node % len(brokers)] if brokers else NO_BROKER
    return node if node in brokers else NO_BROKER


def rename_brokers(request: Message, broker_id: int) -> Message:
    """Return a part of a request with the name that its broker has in the upstream."""
    if broker_id < 0:
        return request
    resources: Any = request
    return request.replace(
        resources=[each.replace(resource_name=str(broker_id)) for each in resources.resources]
    )


def restore_names(request: Message, response: Message) -> None:
    """Name the resources of a part's answer as the client has named them, in place."""
    asked: Any = request
    names = [
        each.resource_name for each in asked.resources if each.resource_type in TYPES_OF_BROKERS
    ]
    answered: Any = response
    rows = answered.results if hasattr(answered, "results") else answered.responses
    of_brokers = [row for row in rows if row.resource_type in TYPES_OF_BROKERS]
    if len(of_brokers) == len(names):
        for row, name in zip(of_brokers, names, strict=True):
            row.resource_name = name


def names_brokers(request: Message) -> bool:
    """Return whether a request assigns replicas to brokers."""
    match request:
        case CreateTopicsRequest() | CreatePartitionsRequest():
            return any(topic.assignments for topic in request.topics)
        case _:
            return False
