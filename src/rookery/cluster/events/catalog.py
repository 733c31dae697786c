"""Every event by its key."""

from __future__ import annotations

from typing import Final

from rookery.cluster.events import brokers, groups, imports, log, pins, sinks, topics, txns
from rookery.wire.message import Message

EVENTS: Final[dict[int, type[Message]]] = {
    event.KEY: event
    for module in (brokers, topics, pins, log, groups, txns, sinks, imports)
    for event in vars(module).values()
    if isinstance(event, type) and issubclass(event, Message) and event.KEY is not None
}
