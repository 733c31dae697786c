"""Brokers over real servers that the tests disturb; each test has its own log in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rookery.testing.backends import ETCD, STORE, ServerBackend
from tests.faults.objects.scene import Scene


@pytest.fixture
def kind() -> str:
    """Where the brokers agree; a test that is to run over both has a parameter of this name."""
    return ETCD


@pytest.fixture
def scene(
    backend: ServerBackend, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """A separate log for the test, and a proxy in front of its store."""
    assert kind in (ETCD, STORE)
    with ExitStack() as stack:
        made = Scene(backend, kind, tmp_path, stack)
        yield made
        if request.session.testsfailed:
            print(made.words())  # noqa: T201 (pytest shows it with the failure)
