"""A test that froze in C code ends its process, with the stacks of all threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frozen import limit_seconds

ROOT = Path(__file__).parents[2]
HOOKS = """
from tests.frozen import FrozenWatch

def pytest_configure(config):
    config.pluginmanager.register(FrozenWatch(grace_seconds=0.3))
"""
# The second call waits for a lock that its own thread has, and no signal ends that.
FREEZES = """
import ctypes

import pytest

@pytest.fixture
def mutex():
    return ctypes.create_string_buffer(64)

@pytest.fixture
def freezing(mutex):
    yield
    freeze(mutex)

def freeze(mutex):
    library = ctypes.{library}(None)
    while True:
        library.pthread_mutex_lock(mutex)
        print("a line that is captured")

@pytest.mark.timeout(0.3)
def test_freezes({fixtures}):
    {body}
    assert False, "it returned"
"""


@pytest.mark.parametrize(
    ("library", "fixtures", "body"),
    [
        pytest.param("CDLL", "mutex", "freeze(mutex)", id="main thread"),
        pytest.param("PyDLL", "mutex", "freeze(mutex)", id="interpreter's lock"),
        pytest.param("CDLL", "freezing", "raise RuntimeError", id="after a failure"),
    ],
)
def test_frozen_process_shows_its_stacks_and_ends(
    tmp_path: Path, library: str, fixtures: str, body: str
) -> None:
    (tmp_path / "conftest.py").write_text(HOOKS, "utf-8")
    text = FREEZES.format(library=library, fixtures=fixtures, body=body)
    (tmp_path / "test_freezes.py").write_text(text, "utf-8")
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--rootdir", str(tmp_path)]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert run.returncode == 1, run.stdout
    assert "Timeout (0:00:00.6" in run.stderr
    assert "in freeze" in run.stderr


def test_watch_follows_the_limits_of_tests(request: pytest.FixtureRequest) -> None:
    assert limit_seconds(request.node) == 300

    request.node.add_marker(pytest.mark.timeout(20))

    assert limit_seconds(request.node) == 20


def test_tests_are_watched(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("frozen")
