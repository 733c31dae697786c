"""A directory that a real Kafka has made, once for all tests here; each works on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rookery.testing.kafkadir import Made, Seen, make

Copy = Callable[[Seen], Path]

# The first test that asks for it waits for four lives of a Kafka, on a machine that may be busy.
SECONDS = 900


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The directory after kill -9, and after an orderly end."""
    return make(tmp_path_factory.mktemp("kafkadir"))


@pytest.fixture
def copied(tmp_path: Path) -> Copy:
    """Copies a directory, so that a test may do to it what it likes."""

    def copy(seen: Seen) -> Path:
        return Path(shutil.copytree(seen.folder, tmp_path / "copy"))

    return copy


@pytest.fixture(params=["killed", "stopped"])
def seen(request: pytest.FixtureRequest, made: Made) -> Seen:
    """The directory at each of the two moments."""
    found: Seen = getattr(made, request.param)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give time to whatever uses the directory, and say that it needs a real Kafka."""
    for item in items:
        if "made" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(SECONDS))
            item.add_marker(pytest.mark.kafka)
