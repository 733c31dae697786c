"""A directory that a real Kafka has made, once for all tests here; each works on a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.testing.folder import copy_folder
from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkadircache import make_cached
from rookery.testing.kafkasight import ClusterSight

Copy = Callable[[ClusterSight], Path]

# If none is cached, the first test waits for four lives of a Kafka.
SECONDS = 900


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> MadeDirectory:
    """The directory after kill -9, and after an orderly end."""
    return make_cached(tmp_path_factory.mktemp("kafkadir") / "made")


@pytest.fixture
def copied(tmp_path: Path) -> Copy:
    """Copies a directory, so that a test may do to it what it likes."""

    def copy(seen: ClusterSight) -> Path:
        return copy_folder(seen.folder, tmp_path / "copy")

    return copy


@pytest.fixture(params=["killed", "stopped"])
def seen(request: pytest.FixtureRequest, made: MadeDirectory) -> ClusterSight:
    """The directory at each of the two moments."""
    sight: ClusterSight = getattr(made, request.param)
    return sight


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give time to whatever uses the directory, and say that it needs a real Kafka."""
    for item in items:
        if "made" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SECONDS))
            item.add_marker(pytest.mark.kafka)
