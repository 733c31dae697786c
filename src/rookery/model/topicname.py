"""Names of Kafka's internal topics."""

from __future__ import annotations

from typing import Final

OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, "__share_group_state"})
"""Topics in which Kafka stores its own records."""
RESERVED_TOPICS: Final = INTERNAL_TOPICS | {"__cluster_metadata"}
"""Names that no topic of a user can have."""
