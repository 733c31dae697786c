"""Workers of Spark's own daemon: what they have loaded is set aside, once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from rookery.spark.settling import settle, settled


@pytest.fixture(autouse=True)
def frozen_nothing() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def run_as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = ModuleType("__main__")
    program.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", program)


def test_a_worker_sets_aside_what_it_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    settle()
    count = gc.get_freeze_count()
    assert count > 1000
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated] # anything that is tracked
    settle()
    assert gc.get_freeze_count() <= count, f"{len(kept)} more things came later"


def test_other_programs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pytest")
    settle()
    assert not gc.get_freeze_count()


def test_it_comes_behind_the_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    rows = settled(iter("ab"))
    assert next(rows) == "a"
    assert next(rows) == "b"
    assert not gc.get_freeze_count()
    assert not list(rows)
    assert gc.get_freeze_count()
