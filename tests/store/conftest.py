from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.testing.seaweed import SeaweedServer


@pytest.fixture(scope="session")
def seaweed() -> Iterator[SeaweedServer]:
    """Return a running S3 server; each test takes a prefix of its own in it."""
    with SeaweedServer() as server:
        yield server
