"""A real Kafka with topics in the exact form that a test needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import Logs


@pytest.fixture
def topics(kafka: KafkaServer) -> Iterator[Logs]:
    """Makes topics on the one Kafka."""
    with Logs(kafka.bootstrap) as made:
        yield made
