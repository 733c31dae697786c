"""The three state topics, with every record that Kafka 4.3 keeps in them."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Final

from rookery.wire.coordinator import (
    classic,
    consumer,
    offsets,
    share,
    share_state,
    streams,
    transactions,
)
from rookery.wire.coordinator.frames import StateTopic
from rookery.wire.message import Message


def _pairs(*modules: ModuleType) -> Iterator[tuple[type[Message], type[Message]]]:
    """Yield each key class with its value class: `XKey` belongs to `XValue`."""
    for module in modules:
        for name, item in vars(module).items():
            if name.endswith("Key") and isinstance(item, type) and issubclass(item, Message):
                yield item, getattr(module, name.removesuffix("Key") + "Value")


CONSUMER_OFFSETS: Final = StateTopic(
    "__consumer_offsets", list(_pairs(offsets, classic, consumer, share, streams))
)
TRANSACTION_STATE: Final = StateTopic("__transaction_state", list(_pairs(transactions)))
SHARE_GROUP_STATE: Final = StateTopic("__share_group_state", list(_pairs(share_state)))
